"""A client of http.client and ssl: PORT CERTIFICATE VERSION LARGE-FILE."""

import http.client
import socket
import ssl
import sys

port, certificate, version, large = sys.argv[1:]
port, large = int(port), open(large, "rb").read()
context = ssl.create_default_context(cafile=certificate)
context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version.replace(".", "_"))
context.set_alpn_protocols(["http/1.1"])


def connect(session=None):
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    # An end that is not announced is an error.
    return context.wrap_socket(
        plain, server_hostname="localhost", session=session, suppress_ragged_eofs=False
    )


def expect(found, expected):
    if found != expected:
        sys.exit(f"{found!r:.200} instead of {expected!r:.200}")


def parked():
    print("idle", flush=True)
    sys.stdin.readline()


http_client = http.client.HTTPConnection("localhost", port)
http_client.sock = stream = connect()
expect(stream.version(), version)


def request(method, path, body=None):
    http_client.request(method, path, body)
    answer = http_client.getresponse()
    text = answer.read()
    if http_client.sock is not stream:
        sys.exit("the connection was closed")
    return answer.status, text


for _ in range(3):
    expect(request("GET", "/small"), (200, b"0123456789"))
expect(request("POST", "/c", large[: 1 << 20])[0], 201)
expect(request("GET", "/large"), (200, large))
for _ in range(2):
    parked()
    expect(request("GET", "/small"), (200, b"0123456789"))
parked()
# The client says that it sends no more, and waits until the server has said the same.
session = stream.session
stream.unwrap().close()

stream = connect(session)
expect(stream.session_reused, True)
stream.sendall(b"GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
text = b"".join(iter(lambda: stream.recv(65536), b""))
expect(text[-14:], b"\r\n\r\n0123456789")
print("done")
