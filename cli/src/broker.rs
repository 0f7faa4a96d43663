//! `cutwater broker`: serves a log until SIGINT or SIGTERM, then closes it cleanly.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use cutwater_broker::{
    Broker, BrokerError, BrokerOptions, CertificateName, Listen, MetricsOptions, Security, TlsFiles,
};
use cutwater_partition_log::{CloseError, Holder, Log, LogLimits, LogOptions, OpenError};
use cutwater_platform::Platform;
use signal_hook::consts::{SIGINT, SIGTERM};
use thiserror::Error;

use crate::{advice, users};

/// How often it looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(50);
/// The exit code of a second signal.
const INTERRUPTED: i32 = 130;

#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct BrokerArguments {
    #[command(subcommand)]
    command: Option<BrokerCommand>,
    /// The log's directory; created if it isn't there.
    #[arg(long, alias = "dir", value_name = "DIR", env = "CUTWATER_DATA", required = true)]
    data: Option<PathBuf>,
    /// Where to listen, once or several times: [plain://|tls://|sasl-tls://|sasl://]ADDRESS[=HOST:PORT]. Port 0 takes a free one; HOST:PORT is what
    /// clients are told to connect to, if not the address. What other machines can reach must have TLS and authentication. The
    /// addresses are printed, one a line, once clients can connect.
    #[arg(
        long,
        value_name = "LISTEN",
        default_value = "127.0.0.1:9092",
        env = "CUTWATER_LISTEN",
        value_delimiter = ','
    )]
    listen: Vec<Listen>,
    /// PEM file with the server's certificate, for tls://, and behind it those of its issuers.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// PEM file with the certificates of authorities: clients must then show a certificate that one of them issued.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Name users after their certificates on tls:// listeners: by the whole distinguished name, or by the common name in it. Without
    /// this certificates let in, and who comes is User:ANONYMOUS.
    #[arg(long, value_name = "WHAT", requires = "tls_client_ca")]
    tls_principal: Option<Principal>,
    /// Ask for each request whether its user may do that; what no rule allows is then denied. Rules are made by Kafka's tools.
    #[arg(long)]
    authorize: bool,
    /// A user that may do everything; may be given several times.
    #[arg(long, value_name = "NAME", requires = "authorize")]
    super_user: Vec<String>,
    /// If another process of this machine holds the log, end that process and go on.
    #[arg(long)]
    take_over: bool,
    /// Megabytes of what was written last that stay in memory, for readers that follow. What is older is read from the disk, the first
    /// time.
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    tail_megabytes: u32,
    /// Don't create topics that clients ask for and that aren't there.
    #[arg(long)]
    no_auto_create: bool,
    /// Partitions of topics whose creator doesn't say how many.
    #[arg(long, value_name = "N", default_value_t = 1)]
    partitions: u32,
    /// How long, in milliseconds, a new group waits for more members before its first assignment.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    group_initial_delay: u64,
    /// How long, in milliseconds, a member of a consumer group by the newer protocol may be silent before it is none any more.
    #[arg(long, value_name = "MS", default_value_t = 45_000)]
    consumer_group_session: u64,
    /// How often, in milliseconds, such a member is told to be heard of.
    #[arg(long, value_name = "MS", default_value_t = 5_000)]
    consumer_group_heartbeat: u64,
    /// How many minutes offsets of a group are kept after its last member has left, or, where nobody was ever in it, after their commit.
    #[arg(long, value_name = "MINUTES", default_value_t = 7 * 24 * 60)]
    offsets_retention_minutes: u64,
    /// Where to serve metrics for Prometheus (`GET /metrics`, `GET /healthz`): a loopback address, such as 127.0.0.1:9644. The
    /// address is printed on a second line.
    #[arg(long, value_name = "ADDRESS", env = "CUTWATER_METRICS")]
    metrics: Option<SocketAddr>,
    /// Let the metrics be served on an address that other machines can reach, without authentication.
    #[arg(long, requires = "metrics")]
    metrics_public: bool,
    /// The most series named after topics and groups; further ones are left out and counted.
    #[arg(long, value_name = "N", default_value_t = 20_000, requires = "metrics")]
    metrics_series: usize,
}

/// What of a certificate names its user.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Principal {
    /// User:CN=alice,OU=jobs,O=Example
    Dn,
    /// User:alice
    Cn,
}

#[derive(Debug, Subcommand)]
enum BrokerCommand {
    /// Users that may connect.
    User(users::UserArguments),
}

#[derive(Debug, Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Users(#[from] users::UserError),
    #[error("{source}{}", advice::about_data(source))]
    Open {
        #[from]
        source: OpenError,
    },
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error(transparent)]
    Close(#[from] CloseError),
    #[error("can't listen to signals: {0}")]
    Signals(std::io::Error),
}

/// Serves until told to stop.
pub(crate) fn run(arguments: &BrokerArguments) -> Result<(), RunError> {
    if let Some(BrokerCommand::User(arguments)) = &arguments.command {
        return Ok(users::run(arguments)?);
    }
    let data = arguments.data.clone().expect("the command line asks for it");
    // What may not be served is refused while nothing has been touched yet.
    let security = security(arguments, &data);
    Broker::check(&arguments.listen, &security)?;
    let metrics = MetricsOptions { allow_public: arguments.metrics_public, series_max: arguments.metrics_series };
    arguments.metrics.iter().try_for_each(|address| metrics.check(*address))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: only a second signal finds the flag set.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, stop.clone())
            .map_err(RunError::Signals)?;
        signal_hook::flag::register(signal, stop.clone()).map_err(RunError::Signals)?;
    }
    let platform = Platform::real();
    let holder = Holder { job: "cutwater broker".to_string(), attempt: 0 };
    let limits = LogLimits { tail_bytes: (arguments.tail_megabytes as usize) << 20, ..LogLimits::default() };
    let options = LogOptions { holder, take_over: arguments.take_over, limits };
    let log = Log::open(&platform, &data, options)?;
    let options = BrokerOptions {
        auto_create_topics: !arguments.no_auto_create,
        default_partitions: arguments.partitions.max(1),
        group_initial_delay: Duration::from_millis(arguments.group_initial_delay),
        consumer_session: Duration::from_millis(arguments.consumer_group_session),
        consumer_heartbeat: Duration::from_millis(arguments.consumer_group_heartbeat),
        offsets_retention: Duration::from_secs(arguments.offsets_retention_minutes.saturating_mul(60)),
        security,
        ..BrokerOptions::default()
    };
    let broker = Broker::serve(&platform, log.clone(), &arguments.listen, options)?;
    let metrics = arguments.metrics.map(|address| broker.serve_metrics(address, metrics)).transpose()?;
    broker.addresses().iter().for_each(announce);
    metrics.iter().for_each(|metrics| announce(&metrics.address()));
    tracing::info!(addresses = ?broker.addresses(), data = %data.display(), "serving the log");
    while !stop.load(Ordering::SeqCst) {
        platform.clock.sleep(LOOK);
    }
    tracing::info!("stopping");
    drop(metrics);
    broker.stop();
    log.close()?;
    tracing::info!("the log is closed");
    Ok(())
}

fn security(arguments: &BrokerArguments, data: &Path) -> Security {
    let files = arguments.tls_cert.clone().zip(arguments.tls_key.clone());
    let client_ca = arguments.tls_client_ca.clone();
    Security {
        tls: files.map(|(certificate, key)| TlsFiles { certificate, key, client_ca }),
        data: Some(data.to_path_buf()),
        authorize: arguments.authorize,
        certificate_names: arguments.tls_principal.map(|by| match by {
            Principal::Dn => CertificateName::Distinguished,
            Principal::Cn => CertificateName::Common,
        }),
        super_users: arguments.super_user.clone(),
    }
}

#[expect(clippy::print_stdout, reason = "the address is what this command answers")]
fn announce(address: &SocketAddr) {
    println!("{address}");
}
