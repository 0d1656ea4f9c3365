# Tells everybody on the link that addresses are here, as who takes a virtual address over does: by gratuitous ARP (RFC 5227, section 3), or by
# an unsolicited neighbour advertisement (RFC 4861, section 7.2.6). Arguments are the device, its MAC address, and addresses of either family.
use strict;
use Socket qw(:all);
my ($device, $text, @addresses) = @ARGV;
my $mac = pack "H*", $text =~ tr/://dr;
# AF_PACKET, SOCK_RAW, and no protocol: nothing is received.
socket(my $link, 17, 3, 0) or die "packets: $!";
my $request = pack "a16lx20", $device, 0;
# SIOCGIFINDEX
ioctl $link, 0x8933, $request or die "$device: $!";
my $to = pack "SnlSCCa8", 17, 0, unpack("x16l", $request), 0, 0, 6, "\xff" x 6;
sub sum {
    my $sum = 0;
    $sum += $_ for unpack "n*", shift;
    $sum = ($sum >> 16) + ($sum & 0xffff) while $sum >> 16;
    return ~$sum & 0xffff;
}
sub advertisement {
    my $own = shift;
    my $all_nodes = inet_pton(AF_INET6, "ff02::1");
    # That it overrides what is known, and the option with the link-layer address.
    my $told = pack("CCnN", 136, 0, 0, 0x20000000) . $own . pack("CCa6", 2, 1, $mac);
    substr($told, 2, 2) = pack "n", sum($own . $all_nodes . pack("NN", length $told, 58) . $told);
    return pack("H*", "333300000001") . $mac . pack("n", 0x86dd) . pack("NnCC", 6 << 28, length $told, 58, 255) . $own . $all_nodes . $told;
}
for (@addresses) {
    my $frame = /:/
        ? advertisement(inet_pton(AF_INET6, $_))
        : "\xff" x 6 . $mac . pack("nnnCCn", 0x0806, 1, 0x0800, 6, 4, 1) . $mac . inet_aton($_) . "\0" x 6 . inet_aton($_);
    send $link, $frame, 0, $to or die "$_: $!";
}
