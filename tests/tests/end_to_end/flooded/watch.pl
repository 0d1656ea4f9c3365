# Prints the name of every device of this network namespace on which a packet with this payload is seen, whichever way it goes.
use strict;
$| = 1;
alarm 300;
# AF_PACKET, SOCK_RAW, and all protocols in the network's order.
socket(my $all, 17, 3, unpack "S", pack "n", 3) or die "packets: $!";
print "ready\n";
while (defined(my $from = recv $all, my $packet, 65536, 0)) {
    next if index($packet, $ARGV[0]) < 0;
    my (undef, undef, $index) = unpack "SSl", $from;
    my $request = pack "a16lx20", "", $index;
    # SIOCGIFNAME; a device that is gone by now has none.
    ioctl $all, 0x8910, $request or next;
    print unpack("Z16", $request), "\n";
}
