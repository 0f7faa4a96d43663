//! Manifests: no panic, and what decodes says the same again.
#![no_main]

use cutwater_engine::snapshot::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((manifest, checksum)) = Manifest::decode(bytes) {
        let again = manifest.encode().expect("what decodes is consistent");
        assert_eq!(again.checksum, checksum);
    }
});
