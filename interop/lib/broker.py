#!/usr/bin/env python3
"""One broker for the scripts: `broker.py start|kill|restart|stop`.

State is in $INTEROP_STATE (a directory). $INTEROP_AGAINST says which broker: `cutwater` ($CUTWATER_BIN) or `kafka`
(one KRaft node out of the jars in the class path file $INTEROP_KAFKA_CLASSPATH). `start` prints the address. With $INTEROP_AUTHORIZE
it asks an authorizer, whose super user is who connects without a name.

`kill` is SIGKILL: nothing is said to the broker. `restart` kills and starts on the same port and the same data.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(os.environ["INTEROP_STATE"])
AGAINST = os.environ.get("INTEROP_AGAINST", "cutwater")
AUTHORIZE = os.environ.get("INTEROP_AUTHORIZE")
AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\nsuper.users=User:ANONYMOUS"
# Kafka's brokers take seconds to start on a busy machine, ours milliseconds.
START_WITHIN = 90


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def port(name):
    """The port kept under `name`: the same over restarts."""
    file = STATE / f"{name}.port"
    if not file.exists():
        file.write_text(str(free_port()))
    return int(file.read_text())


def answers(where):
    try:
        socket.create_connection(("127.0.0.1", where), timeout=1).close()
        return True
    except OSError:
        return False


def java(*arguments):
    classpath = Path(os.environ["INTEROP_KAFKA_CLASSPATH"]).read_text()
    return ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp", classpath, *arguments]


def kafka_command(listen):
    """The command of a KRaft node, its storage formatted."""
    data, properties = STATE / "kafka", STATE / "server.properties"
    properties.write_text(
        f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{port("controller")}
listeners=PLAINTEXT://127.0.0.1:{listen},CONTROLLER://127.0.0.1:{port("controller")}
advertised.listeners=PLAINTEXT://127.0.0.1:{listen}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=100
transaction.max.timeout.ms=86400000
{AUTHORIZER if AUTHORIZE else ""}
""")
    if not data.exists():
        done = subprocess.run(java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties)),
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"Kafka's storage can't be formatted: {done.stdout}{done.stderr}")
    return java("kafka.Kafka", str(properties))


def pid():
    file = STATE / "pid"
    return int(file.read_text()) if file.exists() else None


def start():
    listen = port("broker")
    if AGAINST == "kafka":
        command = kafka_command(listen)
    else:
        command = [os.environ["CUTWATER_BIN"], "broker", "--data", str(STATE / "data"), "--listen", f"127.0.0.1:{listen}",
                   "--metrics", f"127.0.0.1:{port('metrics')}",
                   # Short, so that the checks that kill a member don't wait for long.
                   "--consumer-group-session", "6000", "--consumer-group-heartbeat", "500", *(["--authorize", "--super-user", "ANONYMOUS"] if AUTHORIZE else [])]
    with open(STATE / "broker.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    (STATE / "pid").write_text(str(process.pid))
    until = time.monotonic() + START_WITHIN
    while not answers(listen):
        if process.poll() is not None or time.monotonic() > until:
            sys.exit(f"the broker did not start, see {STATE / 'broker.log'}:\n{(STATE / 'broker.log').read_text()[-2000:]}")
        time.sleep(0.02)
    print(f"127.0.0.1:{listen}")


def end(how):
    if (running := pid()) is None:
        return
    try:
        os.kill(running, how)
        # Not our child: another process of ours started it. Gone when it is reaped, or when only its first thread's name is left;
        # while another thread is still ending, its files are still locked.
        until = time.monotonic() + 30
        while time.monotonic() < until:
            state = Path(f"/proc/{running}/stat").read_text().rsplit(")", 1)[1].split()[0]
            if state == "Z" and len(os.listdir(f"/proc/{running}/task")) == 1:
                break
            time.sleep(0.01)
    except (ProcessLookupError, FileNotFoundError):
        pass
    (STATE / "pid").unlink()


# One command at a time: scripts restart while they work, from several threads.
lock = open(STATE / "lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
match sys.argv[1:]:
    case ["start"]:
        start()
    case ["kill"]:
        end(signal.SIGKILL)
    case ["stop"]:
        end(signal.SIGTERM)
    case ["restart"]:
        end(signal.SIGKILL)
        start()
    case _:
        sys.exit(__doc__)
