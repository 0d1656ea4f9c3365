# Counts the bytes that arrive by UDP at a port, the argument, by either family. For each line of the standard input it prints how many there
# were since the last one.
use strict;
use Socket qw(:all);
use IO::Select;
$| = 1;
alarm 300;
socket(my $udp, AF_INET6, SOCK_DGRAM, 0) or die "socket: $!";
setsockopt($udp, IPPROTO_IPV6, IPV6_V6ONLY, 0) or die "both families: $!";
setsockopt($udp, SOL_SOCKET, SO_RCVBUF, 1 << 20) or die "room: $!";
bind($udp, pack_sockaddr_in6($ARGV[0], inet_pton(AF_INET6, "::"))) or die "bind: $!";
my ($select, $bytes) = (IO::Select->new(\*STDIN, $udp), 0);
print "ready\n";
while (1) {
    for my $from ($select->can_read) {
        if ($from == $udp) {
            defined recv $udp, my $data, 65536, 0 or next;
            $bytes += length $data;
        } else {
            exit 0 unless sysread STDIN, my $line, 4096;
            print "$bytes\n";
            $bytes = 0;
        }
    }
}
