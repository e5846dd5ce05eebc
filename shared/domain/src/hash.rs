//! Frozen hash contracts. Which shard, vbucket or reverse shard a key belongs to is decided by a contract that was
//! stored when the data was created, never by the defaults of the running build.

use xxhash_rust::xxh64::xxh64;

/// Why a stored contract cannot be computed by this build.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// The algorithm's name is not in the registry.
    #[error("unknown hash algorithm {0:?}")]
    UnknownAlgorithm(String),
    /// The encoding's name is not in the registry.
    #[error("unknown key encoding {0:?}")]
    UnknownEncoding(String),
    /// Nothing can be spread over zero slots.
    #[error("a hash contract needs at least one slot")]
    NoSlots,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Xxh64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// Every part as its length in bytes (32 bits, big endian) followed by its UTF-8 bytes; parts cannot run together.
    LengthPrefixed32,
}

/// A named algorithm with its seed, a named encoding of the key's parts, and the number of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashContract {
    algorithm: Algorithm,
    seed: u64,
    encoding: Encoding,
    slots: u32,
}

impl HashContract {
    /// Reads a stored contract.
    ///
    /// # Errors
    /// [`ContractError`] when this build does not know a name, or there are no slots.
    pub fn parse(algorithm: &str, seed: u64, encoding: &str, slots: u32) -> Result<Self, ContractError> {
        let algorithm = match algorithm {
            "xxh64" => Algorithm::Xxh64,
            other => return Err(ContractError::UnknownAlgorithm(other.to_owned())),
        };
        let encoding = match encoding {
            "lp32be" => Encoding::LengthPrefixed32,
            other => return Err(ContractError::UnknownEncoding(other.to_owned())),
        };
        if slots == 0 {
            return Err(ContractError::NoSlots);
        }
        Ok(Self { algorithm, seed, encoding, slots })
    }

    /// Number of slots keys are spread over.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// The slot of a key, below [`slots`](Self::slots).
    #[must_use]
    pub fn slot(&self, parts: &[&str]) -> u32 {
        let Encoding::LengthPrefixed32 = self.encoding;
        let mut key = Vec::with_capacity(parts.iter().map(|part| part.len() + 4).sum());
        for part in parts {
            // Ids are at most 64 bytes; a longer part would still be told apart by its saturated length and its bytes.
            key.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            key.extend_from_slice(part.as_bytes());
        }
        let Algorithm::Xxh64 = self.algorithm;
        let slot = xxh64(&key, self.seed) % u64::from(self.slots);
        u32::try_from(slot).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn inv_15_unknown_names_are_errors() {
        assert!(matches!(HashContract::parse("md5", 0, "lp32be", 8), Err(ContractError::UnknownAlgorithm(_))));
        assert!(matches!(HashContract::parse("xxh64", 0, "json", 8), Err(ContractError::UnknownEncoding(_))));
        assert_eq!(HashContract::parse("xxh64", 0, "lp32be", 0), Err(ContractError::NoSlots));
    }

    #[test]
    fn parts_do_not_run_together() {
        let contract = HashContract::parse("xxh64", 7, "lp32be", u32::MAX).expect("known names");
        assert_ne!(contract.slot(&["ab", "c"]), contract.slot(&["a", "bc"]));
    }

    proptest! {
        #[test]
        fn inv_11_a_key_keeps_its_slot(video in "[a-z0-9]{1,12}", user in "[a-z0-9]{1,12}", slots in 1u32..5000) {
            let contract = HashContract::parse("xxh64", 42, "lp32be", slots).expect("known names");
            let slot = contract.slot(&[&video, &user]);
            prop_assert!(slot < slots);
            prop_assert_eq!(slot, contract.slot(&[&video, &user]));
        }
    }
}
