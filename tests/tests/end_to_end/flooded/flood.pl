# Sends the same payload by UDP, all the time: arguments are the port, the payload, and the addresses.
use strict;
use Socket qw(:all);
use Time::HiRes qw(sleep);
$| = 1;
alarm 900;
my ($port, $payload, @addresses) = @ARGV;
my @to = map {
    my $six = /:/;
    socket(my $socket, $six ? AF_INET6 : AF_INET, SOCK_DGRAM, 0) or die "socket: $!";
    [$socket, $six ? pack_sockaddr_in6($port, inet_pton(AF_INET6, $_)) : pack_sockaddr_in($port, inet_aton($_))];
} @addresses;
print "ready\n";
while (1) {
    # Where nothing is bound the other end says so, and the next call is told.
    send $_->[0], $payload, 0, $_->[1] for @to;
    sleep 0.005;
}
