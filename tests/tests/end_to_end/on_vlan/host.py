# A host on a VLAN of the data centre, of a kernel that knows no VLANs: on INTERFACE it answers ARP or neighbour solicitations, and ICMP echo, for
# each ADDRESS where the frame has the tag VID, with frames that have it too, and ends once it has answered an echo at every address.
#   host.py INTERFACE VID ADDRESS...
import socket
import struct
import sys

interface, vid = sys.argv[1], int(sys.argv[2])
addresses = [socket.inet_pton(socket.AF_INET6 if ":" in one else socket.AF_INET, one) for one in sys.argv[3:]]
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA, TP_STATUS_VLAN_VALID = 3, 263, 8, 0x10
ARP, IPV4, IPV6 = b"\x08\x06", b"\x08\0", b"\x86\xdd"
ICMPV6, SOLICITATION, ADVERTISEMENT, SOLICITED_OVERRIDE = 58, 135, 136, 0x60000000
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
frames.bind((interface, 0))
# The kernel takes the tag out of what it gives, and says it beside (packet(7)).
frames.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
frames.settimeout(90)
own = frames.getsockname()[4]
print("listening", flush=True)


def folded(sum):
    while sum >> 16:
        sum = (sum & 0xFFFF) + (sum >> 16)
    return sum


def of_words(data):
    return sum(struct.unpack("!%dH" % (len(data) // 2), data))


# An echo's reply, by its request's checksum, which changes as the type does (RFC 1624). That the addresses change places changes no sum.
def replied(request, kind, more):
    checksum = folded(struct.unpack("!H", request[2:4])[0] + more)
    return struct.pack("!BBH", kind, request[1], checksum) + request[4:]


def advertisement(address, to):
    told = struct.pack("!BBHI", ADVERTISEMENT, 0, 0, SOLICITED_OVERRIDE) + address + b"\2\1" + own
    checksum = ~folded(of_words(address + to + struct.pack("!II", len(told), ICMPV6) + told)) & 0xFFFF
    header = struct.pack("!IHBB", 6 << 28, len(told), ICMPV6, 255)
    return header + address + to + told[:2] + struct.pack("!H", checksum) + told[4:]


# What is told behind the type of the frame, and whether that is an echo.
def answer(frame, address):
    kind = frame[12:14]
    if kind == ARP and frame[20:22] == b"\0\1" and frame[38:42] == address:
        return frame[14:20] + b"\0\2" + own + address + frame[22:32], False
    if kind == IPV4 and frame[23] == 1 and frame[30:34] == address and frame[34] == 8:
        return frame[14:26] + address + frame[26:30] + replied(frame[34:], 0, 0x0800), True
    if kind == IPV6 and frame[20] == ICMPV6 and frame[54] == SOLICITATION and frame[62:78] == address:
        return advertisement(address, frame[22:38]), False
    if kind == IPV6 and frame[20] == ICMPV6 and frame[38:54] == address and frame[54] == 128:
        return frame[14:22] + address + frame[22:38] + replied(frame[54:], 129, 0xFEFF), True
    return None


silent = set(addresses)
while silent:
    frame, beside, _, _ = frames.recvmsg(2048, 64)
    said = [struct.unpack_from("=IIIHHHH", data) for level, kind, data in beside if (level, kind) == (SOL_PACKET, PACKET_AUXDATA)]
    if not any(one[0] & TP_STATUS_VLAN_VALID and one[5] & 0xFFF == vid for one in said):
        continue
    for address in addresses:
        told = answer(frame, address)
        if told is not None:
            frames.send(frame[6:12] + own + struct.pack("!HH", 0x8100, vid) + frame[12:14] + told[0])
            if told[1]:
                silent.discard(address)
print("answered", flush=True)
