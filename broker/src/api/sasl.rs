//! `SaslHandshake`, `SaslAuthenticate`: how a connection proves who it is. What it may do until then is the session's business
//! ([`crate::access::session`]); here are codes, delays and the log.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use super::Call;
use crate::access::FAILURE_DELAY;
use crate::access::scram::MECHANISMS;
use crate::access::session::Said;
use crate::errors::{NONE, text};
use crate::service::{Caller, Service};

pub(super) fn handshake(call: &Call<'_>, request: SaslHandshakeRequest) -> SaslHandshakeResponse {
    let chosen = call.caller.session().choose(&request.mechanism, call.version() == 0);
    // Where nobody is asked for a name there is nothing to choose from.
    let offered = if chosen == Err(ResponseError::IllegalSaslState) { &[][..] } else { &MECHANISMS[..] };
    SaslHandshakeResponse::default()
        .with_error_code(chosen.err().map_or(NONE, |error| error.code()))
        .with_mechanisms(offered.iter().map(|mechanism| text(mechanism.name())).collect())
}

pub(super) fn authenticate(call: &Call<'_>, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse {
    let response = SaslAuthenticateResponse::default();
    match take(call.service, call.caller, &request.auth_bytes) {
        Ok(answer) => response.with_auth_bytes(answer),
        Err(error) => {
            let why = match error {
                ResponseError::SaslAuthenticationFailed => "authentication failed: user or password is wrong",
                _ => "no exchange is under way: SaslHandshake comes first",
            };
            response.with_error_code(error.code()).with_error_message(Some(text(why)))
        }
    }
}

/// A message without a header, after a `SaslHandshake` of version 0; the whole answer with its size, if there is one.
pub(crate) fn bare(service: &Arc<Service>, caller: &Caller, message: &[u8]) -> Option<Bytes> {
    let answer = take(service, caller, message).ok()?;
    let size = i32::try_from(answer.len()).expect("answers of an exchange are short");
    Some([&size.to_be_bytes()[..], &answer].concat().into())
}

/// A message of the exchange. A wrong one is counted and answered late, whatever is wrong.
fn take(service: &Arc<Service>, caller: &Caller, message: &[u8]) -> Result<Bytes, ResponseError> {
    let random = &service.platform.random;
    let nonce = (0..3).fold(String::new(), |mut nonce, _| {
        let _ = write!(nonce, "{:016x}", random.next_u64());
        nonce
    });
    let said = caller.session().take(message, &nonce, &service.access.book());
    match said {
        Said::Next(answer) => Ok(answer.into()),
        Said::Done(answer) => {
            let session = caller.session();
            tracing::info!(connection = caller.connection, user = ?session.user(), "authenticated");
            Ok(answer.into())
        }
        Said::Wrong { mechanism, user, why } => {
            service.access.failed(caller, mechanism.name(), &user, why);
            service.platform.clock.sleep(FAILURE_DELAY);
            Err(ResponseError::SaslAuthenticationFailed)
        }
        Said::OutOfTurn => Err(ResponseError::IllegalSaslState),
    }
}
