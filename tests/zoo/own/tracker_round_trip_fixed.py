"""Every step tells a tracking server its number, and waits for the answer."""
import socketserver
import socket
import threading
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Server(socketserver.StreamRequestHandler):
    def handle(self):
        for _ in self.rfile:
            time.sleep(0.03)  # the way there and back
            self.wfile.write(b"ok\n")
            self.wfile.flush()


class Tracker:
    def __init__(self, address):
        self.stream = socket.create_connection(address).makefile("rw")

    def log(self, step):
        self.stream.write(f"{step}\n")
        self.stream.flush()
        return self.stream.readline()


server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Server)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
tracker = Tracker(server.server_address)
g = torch.Generator().manual_seed(1)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch_xla.sync()
for step in range(30):
    x = torch.randn(16, 32, generator=g).to(device)
    y = torch.randint(0, 3, (16,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    torch_xla.sync()
    if step == 29:
        tracker.log(step)
print("loss", round(loss.item(), 3))
