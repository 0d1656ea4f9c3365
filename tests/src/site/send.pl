# Sends what the lines of the standard input say (PROTOCOL ADDRESS PORT PAYLOAD), all of it at once; UDP and echo requests a second time.
use strict;
use Socket qw(:all);
use Fcntl;
use Errno qw(EINPROGRESS);
use Time::HiRes qw(time sleep);
alarm 60;
my (@again, @connecting);
my $id = 1 + int rand 60000;
sub sum {
    my ($sum, $data) = (0, shift);
    $data .= "\0" if length($data) % 2;
    $sum += $_ for unpack "n*", $data;
    $sum = ($sum >> 16) + ($sum & 0xffff) while $sum >> 16;
    return ~$sum & 0xffff;
}
while (<STDIN>) {
    my ($protocol, $address, $port, $payload) = split;
    my $six = $address =~ /:/;
    my $family = $six ? AF_INET6 : AF_INET;
    my $to = sub { $six ? pack_sockaddr_in6($_[0], inet_pton(AF_INET6, $address)) : pack_sockaddr_in($_[0], inet_aton($address)) };
    if ($protocol eq "icmp") {
        socket(my $socket, $family, SOCK_RAW, $six ? 58 : 1) or die "icmp: $!";
        $id = $id % 65000 + 1;
        my $echo = pack("CCnnn", $six ? 128 : 8, 0, 0, $id, 1) . $payload;
        substr($echo, 2, 2) = pack "n", sum($echo) unless $six;
        push @again, [$socket, $echo, $to->(0)];
    } elsif ($protocol eq "udp") {
        socket(my $socket, $family, SOCK_DGRAM, 0) or die "udp: $!";
        push @again, [$socket, $payload, $to->($port)];
    } else {
        socket(my $socket, $family, SOCK_STREAM, 0) or die "tcp: $!";
        fcntl $socket, F_SETFL, O_NONBLOCK;
        connect($socket, $to->($port)) or $! == EINPROGRESS or next;
        push @connecting, [$socket, $payload];
    }
}
my ($began, $sent) = (time, 0);
# A SYN that is lost is sent again after a second.
while (time - $began < 2.5 && ($sent < 2 || @connecting)) {
    if (time - $began >= 0.5 * $sent && $sent < 2) {
        send $_->[0], $_->[1], 0, $_->[2] for @again;
        $sent++;
    }
    my @still;
    for (@connecting) {
        my ($socket, $payload) = @$_;
        my $bits = "";
        vec($bits, fileno $socket, 1) = 1;
        if (!select undef, $bits, undef, 0) { push @still, $_; next }
        next if unpack "i", getsockopt $socket, SOL_SOCKET, SO_ERROR;
        syswrite $socket, $payload;
        close $socket;
    }
    @connecting = @still;
    sleep 0.02;
}
print "sent\n";
