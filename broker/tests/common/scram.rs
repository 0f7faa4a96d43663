//! A client's side of SCRAM-SHA-256, written against the RFC by itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use sha2::{Digest, Sha256};
use std::io::{Read, Write};

use super::Client;

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

pub fn first(user: &str) -> Vec<u8> {
    format!("n,,n={user},r=abcdef").into_bytes()
}

/// The client's last message, and the server's that must follow.
pub fn last(first: &[u8], server: &[u8], password: &str) -> (Vec<u8>, Vec<u8>) {
    let (first, server) = (std::str::from_utf8(first).expect("text"), std::str::from_utf8(server).expect("text"));
    let field = |name: &str| server.split(',').find_map(|field| field.strip_prefix(name)).expect("a field");
    let (salt, rounds) = (BASE64.decode(field("s=")).expect("base64"), field("i=").parse().expect("a number"));
    let mut salted = [0; 32];
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, rounds, &mut salted);
    let unproved = format!("c=biws,r={}", field("r="));
    let said = format!("{},{server},{unproved}", &first[3..]);
    let key = hmac(&salted, b"Client Key");
    let signature = hmac(&Sha256::digest(&key), said.as_bytes());
    let proof: Vec<u8> = key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
    let proved = hmac(&hmac(&salted, b"Server Key"), said.as_bytes());
    let last = format!("{unproved},p={}", BASE64.encode(proof)).into_bytes();
    (last, format!("v={}", BASE64.encode(proved)).into_bytes())
}

impl<S: Read + Write> Client<S> {
    pub fn choose(&mut self, version: i16, mechanism: &str) -> i16 {
        let request = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_string(mechanism.to_string()));
        self.ask(version, request).error_code
    }

    /// Error code and answer.
    pub fn say(&mut self, message: Vec<u8>) -> (i16, Vec<u8>) {
        let answer = self.ask(2, SaslAuthenticateRequest::default().with_auth_bytes(message.into()));
        (answer.error_code, answer.auth_bytes.to_vec())
    }

    /// Proves to be this user; the error code that it ends with.
    pub fn login(&mut self, user: &str, password: &str) -> i16 {
        assert_eq!(self.choose(1, "SCRAM-SHA-256"), 0);
        let first = first(user);
        let (code, server) = self.say(first.clone());
        assert_eq!(code, 0, "even a stranger is challenged");
        let (last, proof) = last(&first, &server, password);
        let (code, answer) = self.say(last);
        if code == 0 {
            assert_eq!(answer, proof, "the server has proved itself, too");
        }
        code
    }
}
