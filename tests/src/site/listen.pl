# Prints every payload that arrives, a word and two numbers (judge-1-2): by UDP and TCP on the given ports, and in echo requests; of both
# families. Each line begins with $WHO.
use strict;
use Socket qw(:all);
use IO::Select;
$| = 1;
alarm 3600;
my $who = $ENV{WHO} // "";
my (%listens, %kind);
my $select = IO::Select->new;
for my $port (@ARGV) {
    for my $type (SOCK_STREAM, SOCK_DGRAM) {
        socket(my $socket, AF_INET6, $type, 0) or die "socket: $!";
        setsockopt($socket, SOL_SOCKET, SO_REUSEADDR, 1) or die "reuse: $!";
        setsockopt($socket, IPPROTO_IPV6, IPV6_V6ONLY, 0) or die "both families: $!";
        bind($socket, pack_sockaddr_in6($port, inet_pton(AF_INET6, "::"))) or die "bind $port: $!";
        if ($type == SOCK_STREAM) { listen($socket, 128) or die "listen: $!"; $listens{fileno $socket} = 1 }
        $kind{fileno $socket} = $type == SOCK_STREAM ? "tcp" : "udp";
        $select->add($socket);
    }
}
for (["icmp4", AF_INET, 1], ["icmp6", AF_INET6, 58]) {
    my ($kind, $family, $protocol) = @$_;
    socket(my $socket, $family, SOCK_RAW, $protocol) or die "$kind: $!";
    $kind{fileno $socket} = $kind;
    $select->add($socket);
}
print "${who}ready\n";
while (1) {
    for my $socket ($select->can_read) {
        my ($number, $data) = (fileno $socket, "");
        my $kind = $kind{$number};
        if ($listens{$number}) {
            accept(my $connection, $socket) or next;
            $kind{fileno $connection} = "tcp";
            $select->add($connection);
            next;
        }
        if ($kind eq "tcp") {
            my $read = sysread $socket, $data, 4096;
            unless ($read) { $select->remove($socket); close $socket; next }
        } else {
            recv $socket, $data, 4096, 0;
            next if $kind eq "icmp4" && ord(substr $data, 20, 1) != 8;
            next if $kind eq "icmp6" && ord(substr $data, 0, 1) != 128;
        }
        $kind = substr $kind, 0, 4;
        print "$who$kind $1\n" while $data =~ /([a-z]+-\d+-\d+)/g;
    }
}
