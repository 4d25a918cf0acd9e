"""Sends CNPs that nobody owes: one to the sender of each of the first ACK packets that come in.

By IPv4. It shares nothing with the stack under test, not even the ICRC.
"""

import argparse
import socket
import struct
import zlib

ETH_P_ALL = 3
ACK, CNP = 0x11, 0x81
IP, UDP, BTH, END = 14, 34, 42, 54


def icrc(packet):
    """Over the IP packet, with ones for what routers change."""
    masked = bytearray(b"\xff" * 8 + packet)
    for at in (1, 8, 10, 11, 26, 27, 32):  # TOS, TTL, both checksums, and 8 bits of the BTH
        masked[8 + at] = 0xFF
    return struct.pack("<I", zlib.crc32(masked))


def checksum(header):
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def cnp(ack):
    """The CNP that the sender of this ACK would send."""
    length = END - IP + 16 + 4
    ip = bytearray(ack[IP:UDP])
    ip[1] = 48 << 2 | 2
    ip[2:4] = struct.pack("!H", length)
    ip[10:12] = bytes(2)
    ip[10:12] = struct.pack("!H", checksum(bytes(ip)))
    udp = ack[UDP:UDP + 4] + struct.pack("!HH", length - 20, 0)
    qpn = ack[BTH + 5:BTH + 8]
    bth = struct.pack("!BBHB", CNP, 0, 0xFFFF, 0x40) + qpn + bytes(4)
    packet = bytes(ip) + udp + bth + bytes(16)
    return ack[:IP] + packet + icrc(packet)


def is_ack(frame):
    return (len(frame) > END and frame[12:14] == b"\x08\x00" and frame[IP] == 0x45
            and frame[IP + 9] == 17 and frame[UDP + 2:UDP + 4] == b"\x12\xb7" and frame[BTH] == ACK)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--in", dest="port_in", required=True, help="port that ACKs come into")
    parser.add_argument("--out", dest="port_out", required=True, help="port to their receiver")
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    port_in, port_out = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) for _ in range(2))
    port_in.bind((options.port_in, ETH_P_ALL))
    port_out.bind((options.port_out, 0))
    print("ready", flush=True)
    for _ in range(options.count):
        while True:
            frame, (_, _, kind, *_) = port_in.recvfrom(65536)
            if kind != socket.PACKET_OUTGOING and is_ack(frame):
                break
        port_out.send(cnp(frame))


main()
