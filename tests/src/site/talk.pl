# One end of a TCP connection and of UDP: says what the lines of the standard input say (PROTOCOL TEXT), and prints what it hears.
# Arguments are its own address, the peer's and the port (7000 without one). Without a peer it waits for who connects.
use strict;
use Socket qw(:all);
use IO::Select;
$| = 1;
alarm 300;
my $six = ($ARGV[1] // $ARGV[0]) =~ /:/;
my $family = $six ? AF_INET6 : AF_INET;
my ($own, $peer, $port) = @ARGV;
$port //= 7000;
my $at = sub { $six ? pack_sockaddr_in6($port, inet_pton(AF_INET6, $_[0])) : pack_sockaddr_in($port, inet_aton($_[0])) };
socket(my $udp, $family, SOCK_DGRAM, 0) or die "udp: $!";
socket(my $tcp, $family, SOCK_STREAM, 0) or die "tcp: $!";
setsockopt($tcp, SOL_SOCKET, SO_REUSEADDR, 1);
bind($udp, $at->($own)) or die "bind udp: $!";
my ($udp_peer, $listens);
if ($peer) {
    connect($tcp, $at->($peer)) or die "connect: $!";
    $udp_peer = $at->($peer);
} else {
    bind($tcp, $at->($own)) or die "bind tcp: $!";
    listen($tcp, 1) or die "listen: $!";
    $listens = $tcp;
}
my $select = IO::Select->new(\*STDIN, $udp, $tcp);
print "ready\n";
while (1) {
    for my $from ($select->can_read) {
        my $data = "";
        if ($listens && $from == $listens) {
            accept(my $connection, $listens) or die "accept: $!";
            $select->remove($listens);
            $select->add($connection);
            ($tcp, $listens) = ($connection, undef);
        } elsif ($from == $udp) {
            $udp_peer = recv($udp, $data, 4096, 0) // next;
            print "udp $data\n";
        } elsif ($from == $tcp) {
            unless (sysread $tcp, $data, 4096) { $select->remove($tcp); next }
            print "tcp $_\n" for split /\n/, $data;
        } else {
            exit 0 unless sysread STDIN, $data, 4096;
            for (split /\n/, $data) {
                my ($protocol, $text) = split / /;
                if ($protocol eq "tcp") { syswrite $tcp, "$text\n" } else { send $udp, $text, 0, $udp_peer }
            }
        }
    }
}
