//! From a frame to a request and from a response to a frame. Everything passes the guard first.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use thiserror::Error;

use super::apis::{self, Api, SMALL_FRAME_BYTES};
use super::guard::{self, Malformed};

/// The head of a request, and its body behind it.
#[derive(Clone, Debug)]
pub struct Head {
    /// The API, if it is served.
    pub api: &'static Api,
    /// The version asked for.
    pub version: i16,
    /// What the answer repeats.
    pub correlation: i32,
    /// What the client calls itself.
    pub client: StrBytes,
    /// The request behind the header.
    pub body: Bytes,
}

/// Why a frame isn't answered, or answered with no more than a list of versions.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// It isn't a request at all.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// This server doesn't have such an API.
    #[error("API {key} is not served")]
    UnknownApi {
        /// Its key.
        key: i16,
    },
    /// It has it in other versions.
    #[error("API {key} is not served in version {version}")]
    UnknownVersion {
        /// Its key.
        key: i16,
        /// The version asked for.
        version: i16,
    },
    /// `ApiVersions` in a version from the future: the client wants to hear which ones there are.
    #[error("the client speaks a newer ApiVersions")]
    NewerApiVersions {
        /// What the answer repeats.
        correlation: i32,
    },
    /// The frame is larger than a request of this API can be.
    #[error("{bytes} bytes are too much for {api:?}")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The API.
        api: ApiKey,
    },
    /// The guard let it pass, but a field isn't what it must be (text that isn't UTF-8, a null that may not be).
    #[error("the request can't be decoded: {0}")]
    Undecodable(String),
}

/// Key, version and correlation id.
const HEAD_BYTES: usize = 2 + 2 + 4;

/// Reads a frame's header and has the guard look at the whole of it.
///
/// # Errors
/// Why it isn't a request that this server answers.
pub fn read(frame: Bytes) -> Result<Head, Refused> {
    let head = frame.get(..HEAD_BYTES).ok_or(Malformed::Short)?;
    let int16 = |at: usize| i16::from_be_bytes([head[at], head[at + 1]]);
    let (key, version) = (int16(0), int16(2));
    let correlation = i32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let api = apis::find(key).ok_or(Refused::UnknownApi { key })?;
    if !api.serves(version) {
        let newer = api.key == ApiKey::ApiVersions;
        return Err(if newer {
            Refused::NewerApiVersions { correlation }
        } else {
            Refused::UnknownVersion { key, version }
        });
    }
    if !api.large && frame.len() > SMALL_FRAME_BYTES {
        return Err(Refused::TooLarge { bytes: frame.len(), api: api.key });
    }
    let skipped = guard::skip_header_end(api.is_flexible(version), &frame[HEAD_BYTES..])?;
    let length: usize = i16::from_be_bytes([frame[HEAD_BYTES], frame[HEAD_BYTES + 1]]).max(0).cast_unsigned().into();
    let client = frame.slice(HEAD_BYTES + 2..HEAD_BYTES + 2 + length);
    let client = StrBytes::from_utf8(client).map_err(|e| Refused::Undecodable(e.to_string()))?;
    let body = frame.slice(HEAD_BYTES + skipped..);
    guard::check(api, version, &body)?;
    Ok(Head { api, version, correlation, client, body })
}

/// Decodes a request that has passed the guard.
///
/// # Errors
/// A field isn't what it must be.
pub fn request<T: Decodable>(head: &Head) -> Result<T, Refused> {
    let mut body = head.body.clone();
    T::decode(&mut body, head.version).map_err(|e| Refused::Undecodable(e.to_string()))
}

/// A response as a whole frame, its size in front.
///
/// # Errors
/// A field has no place in this version, or is too long for it: a mistake of ours.
pub fn response<T: Encodable + HeaderVersion>(
    api: ApiKey,
    version: i16,
    correlation: i32,
    response: &T,
) -> Result<Bytes, Refused> {
    let undecodable = |e: &dyn std::fmt::Display| Refused::Undecodable(format!("answer to {api:?} {version}: {e}"));
    // The answer to ApiVersions has the oldest header, for clients that don't know the version yet.
    let flexible = api != ApiKey::ApiVersions && T::header_version(version) >= 1;
    let size = response.compute_size(version).map_err(|e| undecodable(&e))?;
    let mut frame = BytesMut::with_capacity(9 + size);
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&correlation.to_be_bytes());
    if flexible {
        frame.extend_from_slice(&[0]);
    }
    response.encode(&mut frame, version).map_err(|e| undecodable(&e))?;
    let length = i32::try_from(frame.len() - 4).map_err(|e| undecodable(&e))?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame.freeze())
}
