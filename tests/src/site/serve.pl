# Waits at an address (the argument, of either family) for one who connects, tells it by which address it is seen, and then more than fits
# into a packet.
use strict;
use IO::Socket::IP;
alarm 120;
my $listens = IO::Socket::IP->new(Listen => 1, LocalHost => $ARGV[0], LocalPort => 8080, ReuseAddr => 1) or die "listen: $@";
my $connection = $listens->accept or die "accept: $!";
print $connection $connection->peerhost, " ", "x" x 100000;
close $connection or die "send: $!";
