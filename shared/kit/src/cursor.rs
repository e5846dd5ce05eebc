//! Page tokens that only we can make and only their owner can use.
//!
//! A token is sealed (XChaCha20-Poly1305) with everything it is bound to: the call, the caller, the filter and the
//! generation of the index it points into. Altered, foreign or expired tokens are refused; nothing in them can be read.
//! Keys rotate: the first key of the file seals, all of them open.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use time::OffsetDateTime;
use tonic::{Code, Status};

use crate::errors;

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;
const KEY_BYTES: usize = 32;
/// Longest key id.
const KEY_ID_BYTES_MAX: usize = 32;
/// Longest token that is looked at; far above any payload of ours.
const TOKEN_BYTES_MAX: usize = 4096;

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("read the cursor keys from {path:?}")]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is not `id:base64 of 32 bytes`, or an id stands twice. The line itself is not shown.
    #[error("cursor keys: line {line} {problem}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// There is no key.
    #[error("cursor keys: the file holds no key")]
    Empty,
}

/// What a token is bound to. A token opens only under the same binding.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// The call, for example `likewise.query.v1.LikeQueryService/ListLikers`.
    pub rpc: &'static str,
    /// Who asks; empty for anonymous callers.
    pub caller: &'a str,
    /// Everything else of the request that decides which rows there are.
    pub filter: &'a str,
    /// Generation of the index that the position in the payload belongs to.
    pub generation: u64,
}

/// Why a token was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// Not ours, altered, or issued for another call, caller, filter or generation.
    #[error("the page token is not valid for this call")]
    Invalid,
    /// Ours, but too old.
    #[error("the page token has expired; start from the first page")]
    Expired,
}

impl From<CursorError> for Status {
    fn from(error: CursorError) -> Self {
        match error {
            CursorError::Invalid => errors::refused(Code::InvalidArgument, "CURSOR_INVALID", error.to_string()),
            CursorError::Expired => errors::refused(Code::FailedPrecondition, "CURSOR_EXPIRED", error.to_string()),
        }
    }
}

struct Key {
    id: String,
    cipher: XChaCha20Poly1305,
}

/// The keys that seal and open page tokens.
pub struct CursorKeys {
    keys: Vec<Key>,
}

impl std::fmt::Debug for CursorKeys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<&str> = self.keys.iter().map(|key| key.id.as_str()).collect();
        out.debug_struct("CursorKeys").field("ids", &ids).finish_non_exhaustive()
    }
}

impl CursorKeys {
    /// Reads `id:base64` lines; empty lines and lines that begin with `#` are passed over.
    ///
    /// # Errors
    /// [`Error`] when the file cannot be read or a line is wrong.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// [`Error`] names the first wrong line.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut keys: Vec<Key> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |problem| Error::Line { line: index + 1, problem };
            let (id, secret) = line.split_once(':').ok_or_else(|| wrong("is not id:base64"))?;
            if id.is_empty() || id.len() > KEY_ID_BYTES_MAX {
                return Err(wrong("has an id that is empty or longer than 32 bytes"));
            }
            if keys.iter().any(|key| key.id == id) {
                return Err(wrong("repeats an id"));
            }
            let secret = STANDARD.decode(secret.trim()).map_err(|_| wrong("is not base64 after the id"))?;
            if secret.len() != KEY_BYTES {
                return Err(wrong("holds a key that is not 32 bytes long"));
            }
            let cipher = XChaCha20Poly1305::new_from_slice(&secret).map_err(|_| wrong("holds an unusable key"))?;
            keys.push(Key { id: id.to_owned(), cipher });
        }
        if keys.is_empty() { Err(Error::Empty) } else { Ok(Self { keys }) }
    }

    /// Seals `payload` until `expires_at` (whole seconds).
    #[must_use]
    pub fn seal(&self, binding: &Binding<'_>, expires_at: OffsetDateTime, payload: &[u8]) -> String {
        let key = &self.keys[0];
        let mut nonce = [0; NONCE_BYTES];
        rand::fill(&mut nonce);
        let mut inner = expires_at.unix_timestamp().to_be_bytes().to_vec();
        inner.extend_from_slice(payload);
        let head = head(&key.id);
        let sealed = key
            .cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: &inner, aad: &associated(binding, &head) })
            .expect("a page token is far shorter than the cipher's limit");
        let mut token = head;
        token.extend_from_slice(&nonce);
        token.extend_from_slice(&sealed);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// Opens a token that was sealed under the same binding.
    ///
    /// # Errors
    /// [`CursorError`], which converts into the status of the contract.
    pub fn open(&self, binding: &Binding<'_>, now: OffsetDateTime, token: &str) -> Result<Vec<u8>, CursorError> {
        let inner = self.unseal(binding, token).ok_or(CursorError::Invalid)?;
        let (expires_at, payload) = inner.split_first_chunk::<8>().ok_or(CursorError::Invalid)?;
        if now.unix_timestamp() >= i64::from_be_bytes(*expires_at) {
            return Err(CursorError::Expired);
        }
        Ok(payload.to_vec())
    }

    fn unseal(&self, binding: &Binding<'_>, token: &str) -> Option<Vec<u8>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let token = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (&[version, id_bytes], rest) = token.split_first_chunk::<2>()?;
        if version != VERSION {
            return None;
        }
        let (id, rest) = rest.split_at_checked(usize::from(id_bytes))?;
        let key = self.keys.iter().find(|key| key.id.as_bytes() == id)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let aad = associated(binding, &head(&key.id));
        key.cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: &aad }).ok()
    }
}

/// The readable part of a token: how it is made and with which key.
fn head(key_id: &str) -> Vec<u8> {
    let id_bytes = u8::try_from(key_id.len()).expect("key ids are at most 32 bytes");
    let mut head = vec![VERSION, id_bytes];
    head.extend_from_slice(key_id.as_bytes());
    head
}

/// Each part carries its length, so that no two bindings give the same bytes.
fn associated(binding: &Binding<'_>, head: &[u8]) -> Vec<u8> {
    let mut bytes = b"likewise cursor".to_vec();
    for part in [head, binding.rpc.as_bytes(), binding.caller.as_bytes(), binding.filter.as_bytes()] {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(&binding.generation.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::Duration;

    use super::*;

    const OLD: &str = "old:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const NEW: &str = "new:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    const BOUND: Binding<'static> = Binding { rpc: "Likes/List", caller: "alice", filter: "v1", generation: 3 };
    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn keys(text: &str) -> CursorKeys {
        CursorKeys::parse(text).expect("keys")
    }

    fn later() -> OffsetDateTime {
        NOW + Duration::minutes(5)
    }

    #[test]
    fn a_token_gives_back_what_was_sealed() {
        let keys = keys(OLD);
        let token = keys.seal(&BOUND, later(), b"offset 7");
        assert_eq!(keys.open(&BOUND, NOW, &token), Ok(b"offset 7".to_vec()));
    }

    #[test]
    fn inv_22_a_token_opens_only_for_the_call_caller_filter_and_generation_it_was_issued_for() {
        let keys = keys(OLD);
        let token = keys.seal(&BOUND, later(), b"offset 7");
        let others = [
            Binding { rpc: "Likes/Other", ..BOUND },
            Binding { caller: "mallory", ..BOUND },
            Binding { caller: "", ..BOUND },
            Binding { filter: "v2", ..BOUND },
            Binding { generation: 4, ..BOUND },
            // The same letters, cut elsewhere.
            Binding { caller: "alicev", filter: "1", ..BOUND },
        ];
        for other in others {
            assert_eq!(keys.open(&other, NOW, &token), Err(CursorError::Invalid), "{other:?}");
        }
    }

    #[test]
    fn inv_22_an_expired_token_is_told_apart_from_an_altered_one() {
        let keys = keys(OLD);
        let token = keys.seal(&BOUND, later(), b"offset 7");
        assert!(keys.open(&BOUND, later() - Duration::seconds(1), &token).is_ok());
        assert_eq!(keys.open(&BOUND, later(), &token), Err(CursorError::Expired));
        let reason = |error: CursorError| {
            let status = Status::from(error);
            (status.code(), errors::reason(&status).unwrap_or_default())
        };
        assert_eq!(reason(CursorError::Expired), (Code::FailedPrecondition, "CURSOR_EXPIRED".to_owned()));
        assert_eq!(reason(CursorError::Invalid), (Code::InvalidArgument, "CURSOR_INVALID".to_owned()));
    }

    #[test]
    fn inv_22_tokens_of_a_rotated_key_open_until_the_key_is_taken_out() {
        let token = keys(OLD).seal(&BOUND, later(), b"x");
        assert!(keys(&format!("{NEW}\n{OLD}")).open(&BOUND, NOW, &token).is_ok());
        assert_eq!(keys(NEW).open(&BOUND, NOW, &token), Err(CursorError::Invalid));
        let impostor = OLD.replace("AAAA", "BBBB");
        assert_eq!(keys(&impostor).open(&BOUND, NOW, &token), Err(CursorError::Invalid));
    }

    #[test]
    fn inv_22_a_token_shows_nothing_of_its_payload_and_never_repeats() {
        let keys = keys(OLD);
        let (first, second) = (keys.seal(&BOUND, later(), b"secret"), keys.seal(&BOUND, later(), b"secret"));
        assert_ne!(first, second);
        let bytes = URL_SAFE_NO_PAD.decode(first).expect("base64");
        assert!(!bytes.windows(6).any(|window| window == b"secret"));
    }

    #[test]
    fn wrong_key_files_are_refused_by_line() {
        for (text, expected) in [
            ("", "holds no key"),
            ("# only a comment\n", "holds no key"),
            ("nothing", "line 1 is not id:base64"),
            ("\na:????", "line 2 is not base64"),
            ("a:AAAA", "not 32 bytes"),
            (&format!("{OLD}\n{OLD}"), "line 2 repeats"),
        ] {
            let error = CursorKeys::parse(text).expect_err("refused").to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn inv_22_one_changed_bit_is_enough_to_refuse(position: prop::sample::Index, bit in 0_u8..8, payload: Vec<u8>) {
            prop_assume!(payload.len() < 2000);
            let keys = keys(OLD);
            let token = keys.seal(&BOUND, later(), &payload);
            prop_assert_eq!(keys.open(&BOUND, NOW, &token), Ok(payload));
            let mut bytes = URL_SAFE_NO_PAD.decode(token).expect("base64");
            let position = position.index(bytes.len());
            bytes[position] ^= 1 << bit;
            let altered = URL_SAFE_NO_PAD.encode(bytes);
            prop_assert_eq!(keys.open(&BOUND, NOW, &altered), Err(CursorError::Invalid));
        }

        #[test]
        fn inv_22_any_text_is_refused_without_harm(text in ".{0,200}") {
            prop_assert_eq!(keys(OLD).open(&BOUND, NOW, &text), Err(CursorError::Invalid));
        }
    }
}
