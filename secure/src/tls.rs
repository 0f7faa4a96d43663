//! A network that speaks TLS over another one: who connects through it knows who answers, and nobody listens in.
//!
//! rustls on ring: TLS 1.2 and 1.3, no renegotiation, no resumption, names checked, no way to leave that out. Files are read for each
//! connection. Memory is bounded: what came is opened before more is taken.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::{Clock, Connection, Files, Net, NetError, Platform};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection};

use crate::pem;
use crate::place::TlsPlace;

/// At most so many bytes are sealed at once.
const SEAL_BYTES: usize = 64 << 10;
/// What is taken from the network at once: a TLS record and a little.
const RAW_BYTES: usize = 18 << 10;

/// Connects over TLS.
#[derive(Debug)]
pub struct TlsNet {
    place: TlsPlace,
    inner: Arc<dyn Net>,
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
}

impl TlsNet {
    /// Over the platform's network.
    pub fn new(place: TlsPlace, platform: &Platform) -> TlsNet {
        TlsNet { place, inner: platform.net.clone(), files: platform.files.clone(), clock: platform.clock.clone() }
    }

    fn config(&self) -> Result<ClientConfig, NetError> {
        let unprepared = |reason: String| NetError::Unprepared { reason };
        let roots = pem::roots(&*self.files, &self.place.ca).map_err(|e| unprepared(e.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|e| unprepared(e.to_string()))?.with_root_certificates(roots);
        let mut config = match &self.place.certificate {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = pem::certificates(&*self.files, certificate).map_err(|e| unprepared(e.to_string()))?;
                let secret = pem::private_key(&*self.files, key).map_err(|e| unprepared(e.to_string()))?;
                config.with_client_auth_cert(chain, secret).map_err(|e| {
                    let (certificate, key) = (certificate.display(), key.display());
                    unprepared(format!(
                        "the certificate in {certificate} and the key in {key} can't be used together: {e}"
                    ))
                })?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    /// The name that the certificate must have.
    fn name(&self, address: &str) -> Result<ServerName<'static>, NetError> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = self.place.name.as_deref().unwrap_or(host).to_string();
        let reason = format!("no certificate can have the name {name:?}");
        ServerName::try_from(name).map_err(|_| NetError::Unprepared { reason })
    }
}

impl Net for TlsNet {
    fn connect(&self, address: &str, patience: Duration) -> Result<Box<dyn Connection>, NetError> {
        let (config, name) = (self.config()?, self.name(address)?);
        let session = ClientConnection::new(Arc::new(config), name);
        let mut session = session.map_err(|e| NetError::Unprepared { reason: e.to_string() })?;
        session.set_buffer_limit(Some(SEAL_BYTES));
        let end = self.clock.monotonic() + patience;
        let inner = self.inner.connect(address, patience)?;
        let raw = vec![0; RAW_BYTES].into_boxed_slice();
        let (clock, address) = (self.clock.clone(), address.to_string());
        let mut tls = Tls { inner, session, clock, address, raw, begin: 0, end: 0, out: Vec::new() };
        tls.handshake(end, patience)?;
        Ok(Box::new(tls))
    }
}

struct Tls {
    inner: Box<dyn Connection>,
    session: ClientConnection,
    clock: Arc<dyn Clock>,
    address: String,
    /// What came and wasn't opened yet stands from `begin` to `end`.
    raw: Box<[u8]>,
    begin: usize,
    end: usize,
    /// What is sealed and wasn't sent yet, while it is being sent.
    out: Vec<u8>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({}, {:?})", self.address, self.inner)
    }
}

impl Tls {
    fn left(&self, end: Duration, patience: Duration) -> Result<Duration, NetError> {
        let left = end.saturating_sub(self.clock.monotonic());
        if left.is_zero() { Err(NetError::Late { waited: patience }) } else { Ok(left) }
    }

    fn handshake(&mut self, end: Duration, patience: Duration) -> Result<(), NetError> {
        while self.session.is_handshaking() {
            self.send_sealed(end, patience)?;
            if self.session.is_handshaking() {
                self.open_some(end, patience)?;
            }
        }
        self.send_sealed(end, patience)
    }

    /// Sends what the machine has ready.
    fn send_sealed(&mut self, end: Duration, patience: Duration) -> Result<(), NetError> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.out).expect("memory takes all of it");
        }
        if self.out.is_empty() {
            return Ok(());
        }
        let left = self.left(end, patience)?;
        let sent = self.inner.send(&self.out, left);
        self.out.clear();
        sent
    }

    /// Opens some of what came, or of what comes next. There must be nothing that was opened and not taken.
    fn open_some(&mut self, end: Duration, patience: Duration) -> Result<(), NetError> {
        if self.begin == self.end {
            let left = self.left(end, patience)?;
            (self.begin, self.end) = (0, self.inner.receive_some(&mut self.raw, left)?);
        }
        let mut raw = &self.raw[self.begin..self.end];
        self.begin += self.session.read_tls(&mut raw).map_err(|e| NetError::Lost { reason: e.to_string() })?;
        if let Err(error) = self.session.process_new_packets() {
            // The other side may want to know; whether it hears of it is its own business.
            let _ = self.send_sealed(end, patience);
            return Err(self.judge(error));
        }
        Ok(())
    }

    /// What an error of TLS means to whoever connects.
    fn judge(&self, error: rustls::Error) -> NetError {
        let address = self.address.clone();
        let untrusted = |reason: String| NetError::Untrusted { address, reason };
        match error {
            // An authority of the same name with another key, or of another name.
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => untrusted(
                "its certificate wasn't issued by one of the authorities in the file that was named (--broker-ca): name the file with the \
                 certificate of the authority that did"
                    .to_string(),
            ),
            rustls::Error::InvalidCertificate(
                why @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
            ) => untrusted(format!(
                "{why}: name the broker as its certificate does, or say which name it has (?name=NAME behind the address)"
            )),
            rustls::Error::InvalidCertificate(why) => untrusted(format!("its certificate is of no use: {why}")),
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => NetError::Refused {
                reason: "it wants to see a certificate of this program: name one, and its key (--broker-cert, --broker-key)"
                    .to_string(),
            },
            rustls::Error::AlertReceived(
                alert @ (AlertDescription::BadCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::DecryptError),
            ) => NetError::Refused { reason: format!("it doesn't take this program's certificate ({alert:?})") },
            rustls::Error::AlertReceived(alert) => NetError::Refused { reason: format!("TLS ends with {alert:?}") },
            rustls::Error::InvalidMessage(_) => untrusted("what answers doesn't speak TLS".to_string()),
            other => untrusted(format!("TLS fails: {other}")),
        }
    }
}

impl Connection for Tls {
    fn send(&mut self, mut bytes: &[u8], patience: Duration) -> Result<(), NetError> {
        let end = self.clock.monotonic() + patience;
        while !bytes.is_empty() {
            let piece = &bytes[..bytes.len().min(SEAL_BYTES)];
            let taken = self.session.writer().write(piece).map_err(|e| NetError::Lost { reason: e.to_string() })?;
            bytes = &bytes[taken..];
            self.send_sealed(end, patience)?;
        }
        Ok(())
    }

    fn receive(&mut self, mut buffer: &mut [u8], patience: Duration) -> Result<(), NetError> {
        let end = self.clock.monotonic() + patience;
        while !buffer.is_empty() {
            let came = self.opened(buffer, end, patience)?;
            buffer = &mut buffer[came..];
        }
        Ok(())
    }

    fn receive_some(&mut self, buffer: &mut [u8], patience: Duration) -> Result<usize, NetError> {
        let end = self.clock.monotonic() + patience;
        self.opened(buffer, end, patience)
    }
}

impl Tls {
    /// Some bytes, opened.
    fn opened(&mut self, buffer: &mut [u8], end: Duration, patience: Duration) -> Result<usize, NetError> {
        loop {
            match self.session.reader().read(buffer) {
                Ok(0) => return Err(NetError::Lost { reason: "the other side closed it".to_string() }),
                Ok(came) => return Ok(came),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => self.open_some(end, patience)?,
                Err(error) => return Err(NetError::Lost { reason: error.to_string() }),
            }
        }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        // A farewell, if it can be had at once: what was promised by then stands in whole frames anyway.
        self.session.send_close_notify();
        let end = self.clock.monotonic() + FAREWELL;
        let _ = self.send_sealed(end, FAREWELL);
    }
}

/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_millis(20);
