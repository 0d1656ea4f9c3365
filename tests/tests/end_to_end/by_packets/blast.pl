# Sends by UDP, 40 Mbit in a second, as long as it is told: arguments are seconds, an address of either family, and the port.
use strict;
use Socket qw(:all);
use Time::HiRes qw(time sleep);
my ($seconds, $address, $port) = @ARGV;
my $six = $address =~ /:/;
socket(my $socket, $six ? AF_INET6 : AF_INET, SOCK_DGRAM, 0) or die "socket: $!";
my $to = $six ? pack_sockaddr_in6($port, inet_pton(AF_INET6, $address)) : pack_sockaddr_in($port, inet_aton($address));
my ($payload, $began, $sent, $gone) = ("x" x 1200, time, 0, 0);
while (($gone = time - $began) < $seconds) {
    while ($sent < 5_000_000 * $gone) {
        # What the device has no room for is lost, as what the switch drops is.
        send $socket, $payload, 0, $to;
        $sent += length $payload;
    }
    sleep 0.002;
}
