# Asks by DHCP on an interface: for each number on its input one DISCOVER of that MAC address, with the number as its transaction. Prints
# every OFFER: the number, the server that makes it, the address.
use strict; use warnings; use Socket; $| = 1;
my ($device, $mac) = @ARGV;
my $hardware = pack("H12", $mac =~ s/://gr);
socket(my $socket, AF_INET, SOCK_DGRAM, 0) or die $!;
setsockopt($socket, SOL_SOCKET, SO_REUSEADDR, 1) or die $!;
setsockopt($socket, SOL_SOCKET, SO_BROADCAST, 1) or die $!;
setsockopt($socket, SOL_SOCKET, 25, "$device\0") or die $!; # SO_BINDTODEVICE
bind($socket, sockaddr_in(68, INADDR_ANY)) or die $!;
print "ready\n";
while (1) {
    my $readable = "";
    vec($readable, fileno($_), 1) = 1 for $socket, \*STDIN;
    select($readable, undef, undef, undef) > 0 or next;
    if (vec($readable, fileno(STDIN), 1)) {
        sysread(STDIN, my $lines, 4096) or last;
        for my $number ($lines =~ /\d+/g) {
            my $packet = pack("C4 N n2 x16 a16 x192 N C3 C", 1, 1, 6, 0, $number, 0, 0x8000, $hardware, 0x63825363, 53, 1, 1, 255);
            send($socket, $packet, 0, sockaddr_in(67, INADDR_BROADCAST)) or die $!;
        }
    }
    if (vec($readable, fileno($socket), 1)) {
        defined(recv($socket, my $packet, 2048, 0)) or die $!;
        my ($kind, $number, $address, $whose) = unpack("C x3 N x8 a4 x8 a6", $packet);
        next unless $kind == 2 && $whose eq $hardware && length($packet) > 240;
        my (%option, $at);
        for ($at = 240; $at + 1 < length($packet);) {
            my $code = ord(substr($packet, $at, 1));
            last if $code == 255;
            if ($code == 0) { $at += 1; next }
            my $length = ord(substr($packet, $at + 1, 1));
            $option{$code} = substr($packet, $at + 2, $length);
            $at += 2 + $length;
        }
        next unless ($option{53} // "") eq "\2";
        print "$number ", inet_ntoa($option{54}), " ", inet_ntoa($address), "\n";
    }
}
