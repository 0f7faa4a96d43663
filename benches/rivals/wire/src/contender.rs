//! The servers: how each is started, killed and looked at from outside.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::load;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Our broker: what is acknowledged is synced.
    Cutwater,
    /// Apache Kafka as it comes: nothing is synced before it is acknowledged.
    Kafka,
    /// Apache Kafka with a flush for each message, the nearest it has to our promise on one node.
    KafkaFlush,
    /// tansu, in memory: nothing is kept.
    Tansu,
}

impl Who {
    /// What the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            Who::Cutwater => "cutwater (synced)",
            Who::Kafka => "kafka (not synced)",
            Who::KafkaFlush => "kafka, flush each message",
            Who::Tansu => "tansu (in memory)",
        }
    }

    /// Whether anything is there after a kill.
    pub fn keeps(self) -> bool {
        self != Who::Tansu
    }
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The `cutwater` command.
    pub cutwater: PathBuf,
    /// A file with the class path of Kafka's server.
    pub kafka_classpath: Option<PathBuf>,
    /// The `tansu` command.
    pub tansu: Option<PathBuf>,
}

/// A server that runs, with data of its own.
pub struct Server {
    who: Who,
    programs: Programs,
    dir: tempfile::TempDir,
    port: u16,
    controller: u16,
    child: Child,
}

/// What a server has used so far.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// Processor time, user and system.
    pub cpu: Duration,
    /// Memory now, in bytes.
    pub memory: u64,
    /// The most memory so far, in bytes.
    pub most: u64,
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Server {
    /// Starts one with an empty directory below `below` and waits until it answers.
    pub fn start(who: Who, programs: &Programs, below: &Path) -> Result<Server> {
        let dir = tempfile::tempdir_in(below)?;
        let (port, controller) = (free_port()?, free_port()?);
        let child = spawn(who, programs, dir.path(), port, controller)?;
        let mut server = Server { who, programs: programs.clone(), dir, port, controller, child };
        server.wait()?;
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// SIGKILL, and a new process on the same data. How long until it has acknowledged a write again.
    pub fn kill_and_restart(&mut self) -> Result<Duration> {
        self.child.kill()?;
        self.child.wait()?;
        let began = Instant::now();
        self.child = spawn(self.who, &self.programs, self.dir.path(), self.port, self.controller)?;
        self.wait()?;
        Ok(began.elapsed())
    }

    fn wait(&mut self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(600);
        loop {
            match load::write_one(self.address()) {
                Ok(()) => return Ok(()),
                Err(e) if Instant::now() > until => {
                    return Err(e.context(format!("{} doesn't answer", self.who.name())));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(self.dir.path().join("output")).unwrap_or_default();
                bail!(
                    "{} ended with {status}: {}",
                    self.who.name(),
                    log.lines().rev().take(5).collect::<Vec<_>>().join(" / ")
                );
            }
        }
    }

    /// What it has used since it was started.
    pub fn used(&self) -> Result<Used> {
        let proc = PathBuf::from(format!("/proc/{}", self.child.id()));
        let stat = fs::read_to_string(proc.join("stat"))?;
        let fields: Vec<&str> = stat.rsplit_once(')').context("no name in stat")?.1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        let status = fs::read_to_string(proc.join("status"))?;
        let kib = |name: &str| -> Result<u64> {
            let line = status.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}"))?;
            Ok(line.split_whitespace().nth(1).context("no figure")?.parse::<u64>()? * 1024)
        };
        // Linux counts in hundredths of a second for everybody.
        Ok(Used { cpu: Duration::from_millis(ticks * 10), memory: kib("VmRSS")?, most: kib("VmHWM")? })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about a server that won't die; its directory goes all the same.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(who: Who, programs: &Programs, dir: &Path, port: u16, controller: u16) -> Result<Child> {
    let output = fs::OpenOptions::new().create(true).append(true).open(dir.join("output"))?;
    let address = format!("127.0.0.1:{port}");
    let mut command = match who {
        Who::Cutwater => {
            let mut command = Command::new(&programs.cutwater);
            command.args(["broker", "--data"]).arg(dir.join("data")).args(["--listen", &address]);
            command
        }
        Who::Kafka | Who::KafkaFlush => kafka(who, programs, dir, port, controller)?,
        Who::Tansu => {
            let mut command = Command::new(programs.tansu.as_ref().context("no tansu")?);
            command.args(["broker", "--storage-engine", "memory://tansu/"]);
            command.args(["--listener-url", &format!("tcp://{address}")]);
            command.args(["--advertised-listener-url", &format!("tcp://{address}")]);
            command
        }
    };
    command.stdout(output.try_clone()?).stderr(output).stdin(Stdio::null());
    command.spawn().with_context(|| format!("{} can't be started", who.name()))
}

/// One KRaft node with the settings that Kafka comes with and the heap that its start script gives it.
fn kafka(who: Who, programs: &Programs, dir: &Path, port: u16, controller: u16) -> Result<Command> {
    let classpath = programs.kafka_classpath.as_ref().context("no jars of Kafka")?;
    let classpath = fs::read_to_string(classpath)?;
    let java = || {
        let mut command = Command::new("java");
        command.args(["-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]);
        command.args(["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]);
        command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath.trim()]);
        command
    };
    let (data, properties) = (dir.join("kafka"), dir.join("server.properties"));
    let flush = if who == Who::KafkaFlush { "log.flush.interval.messages=1\n" } else { "" };
    fs::write(
        &properties,
        format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
             log.dirs={}\noffsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n{flush}",
            data.display()
        ),
    )?;
    if !data.exists() {
        let mut format = java();
        format.args(["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c"]).arg(&properties);
        let done = format.output()?;
        ensure!(done.status.success(), "Kafka's storage can't be formatted: {}", String::from_utf8_lossy(&done.stderr));
    }
    let mut command = java();
    command.arg("kafka.Kafka").arg(&properties);
    Ok(command)
}
