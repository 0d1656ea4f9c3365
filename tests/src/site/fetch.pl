# Connects to who waits at an address (the argument, of either family), and prints by which address it was seen, and how much came behind.
use strict;
use IO::Socket::IP;
alarm 60;
my $connection = IO::Socket::IP->new(PeerHost => $ARGV[0], PeerPort => 8080, Timeout => 5) or die "connect: $@";
local $/;
my ($seen, $behind) = split / /, <$connection>, 2;
print "$seen ", length $behind;
