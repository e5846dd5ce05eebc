//! Identifiers. A value of one of these types is known to be well-formed; nobody checks again behind the door.

use std::fmt;
use std::sync::Arc;

/// Longest id, in bytes. It keeps index entries small and leaves room for a UUID with a prefix.
pub const ID_BYTES_MAX: usize = 64;

/// Why a string is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The string is empty.
    #[error("must not be empty")]
    Empty,
    /// The string is longer than [`ID_BYTES_MAX`].
    #[error("must be at most {ID_BYTES_MAX} bytes")]
    TooLong,
    /// The string has a byte outside `[A-Za-z0-9_.:-]`.
    #[error("may only contain A-Z, a-z, 0-9, '_', '.', ':' and '-'")]
    Character,
}

fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > ID_BYTES_MAX {
        return Err(IdError::TooLong);
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-');
    if !text.bytes().all(allowed) {
        return Err(IdError::Character);
    }
    Ok(())
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes a string that obeys the rule for ids: 1..=64 bytes of `[A-Za-z0-9_.:-]`.
            ///
            /// # Errors
            /// [`IdError`] says which part of the rule is broken.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                check(text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!(stringify!($name), "({})"), &self.0)
            }
        }
    )+};
}

ids! {
    /// A user, as the verified token names them.
    UserId,
    /// A video.
    VideoId,
    /// One intent of a client; kept over retries.
    OperationId,
}

/// A device. It is personal data: it has no `Debug` that shows it, so that no log line can hold it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DeviceId(Arc<str>);

impl DeviceId {
    /// Takes a string that obeys the rule for ids.
    ///
    /// # Errors
    /// [`IdError`] says which part of the rule is broken.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        check(text)?;
        Ok(Self(Arc::from(text)))
    }

    /// The id as text, for hashing.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("DeviceId(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_obey_the_rule() {
        for good in ["a", "V9001", "user:7", "a_b.c-d", &"x".repeat(64)] {
            assert!(VideoId::parse(good).is_ok(), "{good}");
        }
        assert_eq!(VideoId::parse(""), Err(IdError::Empty));
        assert_eq!(VideoId::parse(&"x".repeat(65)), Err(IdError::TooLong));
        for bad in ["a b", "a/b", "ü", "a\n", "a'b", "\0"] {
            assert_eq!(VideoId::parse(bad), Err(IdError::Character), "{bad:?}");
        }
    }

    #[test]
    fn inv_27_a_device_id_does_not_show_itself() {
        let device = DeviceId::parse("device-a").expect("well-formed");
        assert!(!format!("{device:?}").contains("device-a"));
    }
}
