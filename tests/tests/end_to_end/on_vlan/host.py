# A host on a VLAN of the data centre, of a kernel that knows no VLANs: on INTERFACE it answers ARP and ICMP echo for ADDRESS where the
# frame has the tag VID, with frames that have it too, and ends after the first echo.
#   host.py INTERFACE VID ADDRESS
import socket
import struct
import sys

interface, vid, address = sys.argv[1], int(sys.argv[2]), socket.inet_aton(sys.argv[3])
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA, TP_STATUS_VLAN_VALID = 3, 263, 8, 0x10
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
frames.bind((interface, 0))
# The kernel takes the tag out of what it gives, and says it beside (packet(7)).
frames.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
frames.settimeout(90)
own = frames.getsockname()[4]
print("listening", flush=True)


def answer(frame):
    if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\1" and frame[38:42] == address:
        return frame[14:20] + b"\0\2" + own + address + frame[22:32]
    if frame[12:14] == b"\x08\0" and frame[23] == 1 and frame[30:34] == address and frame[34] == 8:
        # The type is 0 in place of 8: the checksum is that much more (RFC 1624).
        sum = struct.unpack("!H", frame[36:38])[0] + 0x0800
        sum = (sum & 0xFFFF) + (sum >> 16)
        return frame[14:26] + address + frame[26:30] + b"\0" + frame[35:36] + struct.pack("!H", sum) + frame[38:]
    return None


while True:
    frame, beside, _, _ = frames.recvmsg(2048, 64)
    said = [struct.unpack_from("=IIIHHHH", data) for level, kind, data in beside if (level, kind) == (SOL_PACKET, PACKET_AUXDATA)]
    tagged = any(one[0] & TP_STATUS_VLAN_VALID and one[5] & 0xFFF == vid for one in said)
    told = answer(frame) if tagged else None
    if told is not None:
        frames.send(frame[6:12] + own + struct.pack("!HH", 0x8100, vid) + frame[12:14] + told)
        if frame[12:14] == b"\x08\0":
            print("answered", flush=True)
            break
