//! `cutwater broker` as a process: what it prints, how it ends, and that being killed costs nothing that was acknowledged.

#[path = "../../broker/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use common::{Client, PLAIN, batch, fetch, fetched, name, produce, produced};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{ApiVersionsRequest, CreateTopicsRequest};

/// A running broker; killed if the test ends before it does.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(data: &Path, listen: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutwater"));
    command.args(["broker", "--listen", listen, "--data"]).arg(data).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(data: &Path) -> Running {
    let mut child = command(data, "127.0.0.1:0").spawn().expect("the command starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it prints its address");
    let address = line.trim().parse().expect("an address and nothing else");
    Running { child, address }
}

impl Running {
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    fn end(mut self) -> ExitStatus {
        self.child.wait().expect("it ends")
    }
}

/// Code and standard error of a broker that doesn't start.
fn refused(data: &Path, listen: &str) -> (Option<i32>, String) {
    end_of(command(data, listen))
}

fn end_of(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.spawn().expect("the command starts");
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    (child.wait().expect("it ends").code(), said)
}

fn create(client: &mut Client) {
    let topic = CreatableTopic::default().with_name(name("words")).with_num_partitions(1).with_replication_factor(1);
    let answer = client.ask(7, CreateTopicsRequest::default().with_topics(vec![topic]));
    assert_eq!(answer.topics[0].error_code, 0);
}

#[test]
fn what_was_acknowledged_survives_kill_9_and_a_clean_stop_ends_with_0() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("log");
    let mut acknowledged = 0;
    for life in 0..3 {
        let running = start(&data);
        let mut client = Client::connect(running.address);
        if life == 0 {
            create(&mut client);
        }
        let there = client.ask(11, fetch("words", 0, 0, 0, 0));
        assert!(
            fetched(&there).high_watermark >= acknowledged,
            "life {life}: {} of {acknowledged}",
            fetched(&there).high_watermark
        );
        let begun = fetched(&there).high_watermark;
        for n in 0..20 {
            let answer = client.ask(9, produce("words", 0, 1, batch(PLAIN, &["a word"])));
            assert_eq!(produced(&answer), (0, begun + n));
        }
        acknowledged = begun + 20;
        // Some more are under way when it dies.
        for _ in 0..20 {
            client.send(9, &produce("words", 0, 1, batch(PLAIN, &["perhaps"])));
        }
        running.signal("-9");
        assert_eq!(running.end().code(), None);
    }
    let running = start(&data);
    let mut client = Client::connect(running.address);
    let there = client.ask(11, fetch("words", 0, 0, 0, 0));
    assert!((acknowledged..=acknowledged + 20).contains(&fetched(&there).high_watermark));
    running.signal("-TERM");
    assert_eq!(running.end().code(), Some(0));
}

#[test]
fn what_cannot_be_served_ends_with_1_and_a_reason_and_wrong_usage_with_2() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("log");
    let running = start(&data);
    Client::connect(running.address).ask(3, ApiVersionsRequest::default());
    let (code, said) = refused(&data, "127.0.0.1:0");
    assert!(code == Some(1) && said.contains("cutwater broker"), "the holder is named: {said}");
    let (code, said) = refused(&dir.path().join("other"), &running.address.to_string());
    assert!(code == Some(1) && said.contains("can't listen") && said.contains("choose another port"), "{said}");
    let (code, said) = refused(Path::new("/proc/nope"), "127.0.0.1:0");
    assert!(code == Some(1) && said.contains("/proc/nope") && said.contains("such as --data data/broker"), "{said}");
    let file = dir.path().join("a-file");
    cutwater_platform::Platform::real().files.publish_bytes(&file, b"text").expect("written");
    let (code, said) = refused(&file, "127.0.0.1:0");
    assert!(code == Some(1) && said.contains("name another one with --data"), "{said}");
    let mut no_tail = command(&dir.path().join("other"), "127.0.0.1:0");
    let ended = no_tail.args(["--tail-megabytes", "0"]).output().expect("the command starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(2) && said.contains("1..=1048576"), "{said}");
    // Nothing is made for what may not be served.
    let never = dir.path().join("never");
    let mut metrics = command(&never, "127.0.0.1:0");
    metrics.args(["--metrics", "0.0.0.0:0"]);
    let public = command(&never, "0.0.0.0:0");
    let mut unproved = command(&never, "tls://0.0.0.0:0=log.example.org:9093");
    unproved.args(["--tls-cert", "server.pem", "--tls-key", "server.key"]);
    for (command, why) in [(public, "loopback"), (unproved, "--tls-client-ca"), (metrics, "loopback")] {
        let (code, said) = end_of(command);
        assert!(code == Some(1) && said.contains(why), "{said}");
        assert!(!never.exists(), "no directory for a broker that may not listen");
    }
    let (code, _) = refused(&data, "nowhere");
    assert_eq!(code, Some(2));
}

/// What `cutwater broker user ...` ends with and prints.
fn user(data: &Path, arguments: &[&str], password: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutwater"));
    command.args(["broker", "user"]).args(arguments).arg("--data").arg(data);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    // It may have ended already, for it reads nothing.
    let _ = child.stdin.take().expect("piped").write_all(password.as_bytes());
    let done = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn users_are_added_listed_and_removed_before_and_while_a_broker_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("log");
    let (code, _, said) = user(&data, &["add", "alice"], "a long secret\n");
    assert!(code == Some(0) && !said.contains("secret"), "{said}");
    let running = start(&data);
    assert_eq!(user(&data, &["add", "bob"], "another").0, Some(0), "a running broker doesn't mind");
    assert_eq!(user(&data, &["list"], "").1, "alice\nbob\n");
    let (code, _, said) = user(&data, &["add", "carol"], "\n");
    assert!(code == Some(1) && said.contains("empty"), "{said}");
    assert_eq!(user(&data, &["add", "carol", "a secret on the command line"], "x").0, Some(2));
    assert_eq!(user(&data, &["remove", "bob"], "").0, Some(0));
    let (code, _, said) = user(&data, &["remove", "bob"], "");
    assert!(code == Some(1) && said.contains("no user \"bob\""), "{said}");
    assert_eq!(user(&data, &["list"], "").1, "alice\n");
    running.signal("-TERM");
    assert_eq!(running.end().code(), Some(0));
    let running = start(&data);
    assert_eq!(user(&data, &["list"], "").1, "alice\n", "the log leaves its users alone");
    drop(running);
    let (code, said) = refused(&data, "sasl://0.0.0.0:0");
    assert!(code == Some(1) && said.contains("no TLS"), "{said}");
    let (code, said) = refused(&data, "sasl-tls://127.0.0.1:0");
    assert!(code == Some(1) && said.contains("--tls-cert"), "{said}");
}
