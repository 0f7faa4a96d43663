use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use proptest::prelude::*;

use super::apis::{APIS, Api};
use super::codec::{self, Refused};
use super::guard::{self, Malformed};
use super::samples;
use crate::api::decodes;

fn all() -> impl Iterator<Item = (&'static Api, i16)> {
    APIS.iter().flat_map(|api| (api.versions.0..=api.versions.1).map(move |version| (api, version)))
}

#[test]
fn every_request_in_every_version_is_read_to_its_last_byte_and_then_decoded() {
    for (api, version) in all() {
        let read = codec::read(samples::frame(api, version));
        let head = read.unwrap_or_else(|e| panic!("{:?} {version}: {e}", api.key));
        assert_eq!((head.api.key, head.version, head.correlation), (api.key, version, 77));
        assert_eq!(guard::left_over(api, version, &head.body), Ok(0), "{:?} {version}", api.key);
        assert!(decodes(&head), "{:?} {version}", api.key);
    }
}

#[test]
fn a_request_that_is_cut_anywhere_or_goes_on_for_long_is_refused() {
    for (api, version) in all() {
        let body = samples::body(api, version);
        for cut in 0..body.len() {
            assert!(guard::check(api, version, &body[..cut]).is_err(), "{:?} {version} cut at {cut}", api.key);
        }
        for extra in [guard::TRAILING_MAX, guard::TRAILING_MAX + 1] {
            let longer: Vec<u8> = body.iter().copied().chain(vec![0; extra]).collect();
            let refused = (extra > guard::TRAILING_MAX).then_some(Malformed::Trailing { extra });
            assert_eq!(guard::check(api, version, &longer).err(), refused, "{:?} {version}", api.key);
        }
    }
}

#[test]
fn counts_that_promise_more_than_there_is_are_refused_before_anything_is_allocated() {
    let metadata = APIS.iter().find(|api| api.key == ApiKey::Metadata).expect("it is served");
    let mut lie = i32::MAX.to_be_bytes().to_vec();
    lie.extend_from_slice(&[0; 100]);
    assert_eq!(guard::check(metadata, 1, &lie), Err(Malformed::TooMany));
    let mut lie = 1000i32.to_be_bytes().to_vec();
    lie.extend_from_slice(&[0; 100]);
    assert_eq!(guard::check(metadata, 1, &lie), Err(Malformed::Short));
    // Compact: 2^32 - 2 topics.
    assert_eq!(guard::check(metadata, 12, &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0, 0]), Err(Malformed::TooMany));
    // A number with more digits than it needs.
    assert_eq!(guard::check(metadata, 12, &[0x81, 0x00, 0, 0, 0]), Err(Malformed::Length));
    assert_eq!(guard::check(metadata, 1, &(-2i32).to_be_bytes()), Err(Malformed::Length));
}

/// Found by fuzzing: `kafka-protocol` reads sixteen bytes of a partition's tagged field 0 whatever its length says, went on in
/// the middle of another field, and took what it found there for a count of hundreds of millions of partitions.
#[test]
fn a_tagged_field_that_lies_about_its_length_is_refused() {
    let fetch = APIS.iter().find(|api| api.key == ApiKey::Fetch).expect("it is served");
    for (api, version) in all() {
        let body = samples::body(api, version).to_vec();
        for tag in [0, 1] {
            // The sample's tags stand at its end, or there are none; either way one is put in front of what ends it.
            let [start @ .., _] = &body[..] else { continue };
            let with_tag = |held: &[u8]| {
                let size = u8::try_from(held.len()).expect("short");
                [start, &[1, tag, size], held].concat()
            };
            if api.is_flexible(version) && api.key != ApiKey::Fetch {
                // No request but Fetch has tagged fields of a meaning, so that any length is right.
                assert_eq!(guard::check(api, version, &with_tag(&[7; 5])), Ok(()), "{:?} {version}", api.key);
            }
        }
    }
    // Wait, least and most bytes, isolation, session, topics: one of one partition; forgotten topics, rack.
    let body = |held: &[u8]| {
        let mut body = [0; 12].to_vec();
        body.extend_from_slice(&[0; 1 + 4 + 4]);
        body.push(2);
        body.extend_from_slice(&[0; 16]);
        body.push(2);
        body.extend_from_slice(&[0; 4 + 4 + 8 + 4 + 8 + 4]);
        body.extend_from_slice(&[1, 0, u8::try_from(held.len()).expect("short")]);
        body.extend_from_slice(held);
        body.extend_from_slice(&[0, 1, 1, 0]);
        body
    };
    assert_eq!(guard::left_over(fetch, 17, &body(&[1; 16])), Ok(0));
    for held in [0, 2, 15, 17] {
        assert_eq!(guard::check(fetch, 17, &body(&vec![1; held])), Err(Malformed::Tagged { tag: 0 }), "{held} bytes");
    }
    // Before version 17 the field has no meaning to the guard; the decoder refuses it by its number.
    assert_eq!(guard::left_over(fetch, 16, &body(&[1; 2])), Ok(0));
}

#[test]
fn unknown_apis_and_versions_are_told_apart_and_a_web_browser_is_no_client() {
    let frame = |key: i16, version: i16| {
        let mut frame = key.to_be_bytes().to_vec();
        frame.extend_from_slice(&version.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 9, 0, 0]);
        Bytes::from(frame)
    };
    assert_eq!(codec::read(frame(999, 0)).expect_err("unknown"), Refused::UnknownApi { key: 999 });
    assert_eq!(codec::read(frame(0, 2)).expect_err("old"), Refused::UnknownVersion { key: 0, version: 2 });
    let newer = Refused::NewerApiVersions { correlation: 9 };
    assert_eq!(codec::read(frame(ApiKey::ApiVersions as i16, 99)).expect_err("newer"), newer);
    assert!(codec::read(Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n")).is_err());
    assert!(codec::read(Bytes::new()).is_err());
}

proptest! {
    /// What passes the guard is decoded without harm, whatever it is; what a changed byte makes of a good request is refused
    /// or decoded, and nothing else.
    #[test]
    fn no_bytes_do_harm(pick in any::<prop::sample::Index>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        let all: Vec<_> = all().collect();
        let (api, version) = all[pick.index(all.len())];
        let mut frame = samples::frame(api, version).to_vec();
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        if let Ok(head) = codec::read(Bytes::from(frame)) {
            decodes(&head);
        }
    }
}
