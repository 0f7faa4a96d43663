//! A job that reaches its broker over TLS and as a user who may do no more than it needs: both processes are killed at any moment, and an
//! independent reader finds every sale once. What keeps such a job out ends it with the reason, and without the password.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes take real time, and their directories are filled before they run"
)]

// The example has a `main` of its own.
#[path = "../../examples/shared_topics.rs"]
#[allow(dead_code, reason = "the example's own main is not called here")]
mod shared_topics;

mod common;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{allow, committed};
use cutwater::Exit;
use cutwater_platform::SplitMix;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use shared_topics::SHOPS;

const PASSWORD: &str = "a long password";
/// Says to the process below that it is a job, and how many sales it makes.
const SALES_OF: &str = "CUTWATER_SECURED_SALES";
const ARGUMENTS: &str = "CUTWATER_SECURED_ARGUMENTS";
const PATIENCE: Duration = Duration::from_secs(120);

/// Not a test of its own: a job as a process, with the face that every job has.
#[test]
fn the_job_as_a_process() {
    let (Ok(sales), Ok(arguments)) = (std::env::var(SALES_OF), std::env::var(ARGUMENTS)) else { return };
    let sales = sales.parse().expect("a number");
    let arguments = std::iter::once("sell").chain(arguments.split('\n')).map(OsString::from);
    let exit = cutwater::main_from("sell", arguments, move |job| shared_topics::sell(job, sales, 4_000));
    std::process::exit(exit as i32);
}

/// Certificates, passwords, a broker with a plain and a protected listener, and the user alice.
struct World {
    dir: tempfile::TempDir,
    plain: String,
    secure: String,
    broker: Option<Child>,
}

/// A port that is free now. The broker takes it again after each kill.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").to_string()
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
        let authority = || {
            let mut params = CertificateParams::new(Vec::new()).expect("parameters");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            (params.self_signed(&key).expect("a certificate").pem(), Issuer::new(params, key))
        };
        let (ca, issuer) = authority();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_string()]).expect("parameters");
        write("ca.pem", &ca);
        write("other.pem", &authority().0);
        write("server.pem", &params.signed_by(&key, &issuer).expect("signed").pem());
        write("server.key", &key.serialize_pem());
        write("alice", &format!("{PASSWORD}\n"));
        write("wrong", "another password\n");
        let mut user = cutwater(&["broker", "user", "add", "alice", "--password-file"]);
        user.arg(dir.path().join("alice")).arg("--data").arg(dir.path().join("broker"));
        assert!(user.status().expect("it runs").success());
        let mut world = World { dir, plain: free_port(), secure: free_port(), broker: None };
        world.start_broker();
        // A rule for each right that a job needs, and none more; the other listener is for whoever looks.
        allow(&world.plain, "alice", allow::TOPIC, "sales", &[allow::WRITE, allow::CREATE]);
        allow(&world.plain, "alice", allow::JOBS, "cutwater-job-", &[allow::WRITE]);
        world
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn start_broker(&mut self) {
        let protected = format!("sasl-tls://{}", self.secure);
        let mut command = cutwater(&["broker", "--take-over", "--authorize", "--super-user", "ANONYMOUS"]);
        command.args(["--listen", &self.plain, "--listen", &protected]);
        command.args(["--tls-cert", &self.path("server.pem"), "--tls-key", &self.path("server.key")]);
        command
            .args(["--data", &self.path("broker")])
            .env("RUST_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the broker starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("it is piped"))
            .read_line(&mut line)
            .expect("it says where it listens");
        assert_eq!(line.trim(), self.plain);
        self.broker = Some(child);
    }

    fn kill_broker(&mut self) {
        kill(&mut self.broker);
        self.start_broker();
    }

    /// A job with these flags, its checkpoints in `DIR/NAME`.
    fn job(&self, name: &str, sales: u64, flags: &[&str]) -> Command {
        let dir = self.path(name);
        let mut arguments = vec!["--dir", &dir, "--workers", "2", "--interval", "20ms", "--quiet"];
        arguments.extend(flags);
        let mut command = Command::new(std::env::current_exe().expect("this test's program"));
        command.args(["--exact", "the_job_as_a_process", "--nocapture"]);
        command.env(SALES_OF, sales.to_string()).env(ARGUMENTS, arguments.join("\n"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

impl Drop for World {
    fn drop(&mut self) {
        kill(&mut self.broker);
    }
}

fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn cutwater(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutwater"));
    command.args(arguments);
    command
}

fn assert_exact(address: &str, sales: u64, story: &str) {
    let mut shops: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in (0..2).flat_map(|partition| committed(address, "sales", partition)) {
        let (shop, number) = line.split_once(' ').expect("two numbers");
        shops.entry(shop.parse().expect("a shop")).or_default().push(number.parse().expect("a number"));
    }
    for shop in 0..SHOPS {
        let expected: Vec<u64> = (0..sales / SHOPS).collect();
        assert!(shops.get(&shop) == Some(&expected), "{story}: sales of shop {shop} are {:?}", shops.get(&shop));
    }
}

#[test]
fn a_job_behind_tls_and_a_password_is_killed_with_its_broker_and_nothing_is_lost_or_doubled() {
    const SALES: u64 = 8_000;
    let mut world = World::new();
    let flags = |world: &World| {
        let address = format!("tls://{}", world.secure);
        ["--broker", &address, "--broker-ca", &world.path("ca.pem"), "--broker-user", "alice"].map(String::from)
    };
    let start = |world: &World, by_file: bool| {
        let (mut flags, file) = (flags(world).to_vec(), world.path("alice"));
        if by_file {
            flags.extend(["--broker-password-file".to_string(), file]);
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut command = world.job("sell", SALES, &flags);
        if !by_file {
            command.env("CUTWATER_BROKER_PASSWORD", PASSWORD);
        }
        Some(command.spawn().expect("it starts"))
    };
    let mut random = SplitMix::new(11);
    let mut job = start(&world, true);
    let mut kills = [0; 2];
    for round in 0..8 {
        std::thread::sleep(Duration::from_millis(150 + random.below(300)));
        let which = if round < 4 { round % 2 } else { random.below(2) as usize };
        match which {
            0 => world.kill_broker(),
            _ => {
                kill(&mut job);
                job = start(&world, round % 4 == 1);
            }
        }
        kills[which] += 1;
    }
    let since = Instant::now();
    let status = loop {
        let child = job.as_mut().expect("it was started");
        match child.try_wait().expect("our own child") {
            Some(status) => break status,
            None if since.elapsed() > PATIENCE => {
                kill(&mut job);
                panic!("the job doesn't end");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(status.code(), Some(Exit::Done as i32));
    assert_exact(&world.plain, SALES, &format!("kills of broker and job: {kills:?}"));
}

#[test]
fn what_keeps_a_job_out_ends_it_with_the_reason_and_without_the_password() {
    let world = World::new();
    let (tls, plain) = (format!("tls://{}", world.secure), world.plain.clone());
    let (ca, other, wrong, right) =
        (world.path("ca.pem"), world.path("other.pem"), world.path("wrong"), world.path("alice"));
    let alice = ["--broker-user", "alice", "--broker-password-file"];
    let cases: [(&[&str], Exit, &str); 8] = [
        (&["--broker", &tls], Exit::Usage, "--broker-ca"),
        (&["--broker-user", "alice"], Exit::Usage, "say --broker"),
        (&["--broker", "tls://alice:another password@localhost:1"], Exit::Usage, "doesn't belong in an address"),
        (
            &["--broker", &tls, "--broker-ca", &other, alice[0], alice[1], alice[2], &right],
            Exit::Failed,
            "isn't trusted",
        ),
        (&["--broker", &tls, "--broker-ca", &ca, alice[0], alice[1], alice[2], &wrong], Exit::Failed, "isn't let in"),
        (&["--broker", &tls, "--broker-ca", &ca, alice[0], alice[1]], Exit::Failed, "CUTWATER_BROKER_PASSWORD"),
        (&["--broker", &world.secure], Exit::Failed, "speaks TLS"),
        (&["--broker", &format!("tls://{plain}"), "--broker-ca", &ca], Exit::Failed, "speaks no TLS"),
    ];
    for (number, (flags, exit, said)) in cases.iter().enumerate() {
        let mut job = world.job(&format!("out-{number}"), 8, flags);
        let mut child = job.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut text = String::new();
        child.stderr.as_mut().expect("it is piped").read_to_string(&mut text).expect("text");
        let status = child.wait().expect("our own child");
        assert!(text.contains(said), "{flags:?}: {text}");
        assert!(!text.contains(PASSWORD) && !text.contains("another password"), "{text}");
        assert_eq!(status.code(), Some(*exit as i32), "{flags:?}: {text}");
    }
    // Let in, and not allowed: the right is named.
    let address = format!("{tls}?ca={ca}");
    let mut job = world.job("denied", 8, &["--broker", &address, alice[0], "bob", alice[2], &right]);
    let mut user = cutwater(&["broker", "user", "add", "bob", "--password-file"]);
    user.arg(Path::new(&right)).args(["--data", &world.path("broker")]);
    assert!(user.status().expect("it runs").success());
    // A running broker looks once a second.
    std::thread::sleep(Duration::from_millis(2_500));
    let out = job.stderr(Stdio::piped()).output().expect("it runs");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("needs the right") && text.contains("User:bob"), "{text}");
    assert_eq!(out.status.code(), Some(Exit::Failed as i32));
}
