//! The frozen contract of a generation: which reverse shard a user belongs to, and which part holds a shard of a video.
//!
//! Whoever lists a video reads every reverse shard of it; whoever folds an event touches one. Changing any of it puts the
//! tombstone and the order row of one user into different places, so it never changes: another contract is another
//! generation.

use likewise_domain::hash::{ContractError, HashContract};
use likewise_domain::id::{UserId, VideoId};

/// What is frozen, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen {
    /// Number of the generation.
    pub generation: i32,
    /// Name of the hash algorithm.
    pub hash_algorithm: String,
    /// Its seed.
    pub hash_seed: u64,
    /// Name of the encoding of keys.
    pub key_encoding: String,
    /// Reverse shards per video: R.
    pub reverse_shards: u32,
    /// Parts that hold them: P.
    pub parts: u32,
    /// Relation shards, one lane each.
    pub lanes: u16,
}

/// A contract that this build can compute.
#[derive(Debug, Clone)]
pub struct Contract {
    generation: i32,
    shards: HashContract,
    parts: HashContract,
}

impl Contract {
    /// Reads what is stored.
    ///
    /// # Errors
    /// When this build does not know a name, or there are no slots.
    pub fn parse(frozen: &Frozen) -> Result<Self, ContractError> {
        let contract =
            |slots| HashContract::parse(&frozen.hash_algorithm, frozen.hash_seed, &frozen.key_encoding, slots);
        Ok(Self {
            generation: frozen.generation,
            shards: contract(frozen.reverse_shards)?,
            parts: contract(frozen.parts)?,
        })
    }

    /// Number of the generation.
    #[must_use]
    pub const fn generation(&self) -> i32 {
        self.generation
    }

    /// Reverse shards per video.
    #[must_use]
    pub const fn reverse_shards(&self) -> u32 {
        self.shards.slots()
    }

    /// The shard of a user, the same for every video.
    #[must_use]
    pub fn reverse_shard(&self, user: &UserId) -> u32 {
        self.shards.slot(&[user.as_str()])
    }

    /// The part that holds one shard of a video.
    #[must_use]
    pub fn part(&self, video: &VideoId, reverse_shard: u32) -> u32 {
        self.parts.slot(&[video.as_str(), &reverse_shard.to_string()])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frozen(reverse_shards: u32, parts: u32) -> Frozen {
        Frozen {
            generation: 1,
            hash_algorithm: "xxh64".to_owned(),
            hash_seed: 42,
            key_encoding: "lp32be".to_owned(),
            reverse_shards,
            parts,
            lanes: 4,
        }
    }

    #[test]
    fn a_contract_of_another_build_is_refused() {
        let unknown = Frozen { hash_algorithm: "blake3".to_owned(), ..frozen(4, 2) };
        assert!(matches!(Contract::parse(&unknown), Err(ContractError::UnknownAlgorithm(_))));
    }

    #[test]
    fn the_first_contract_stays_what_it_is() {
        // Golden values: a change of any of them would tear stored rows apart.
        let contract = Contract::parse(&frozen(4, 2)).expect("known names");
        let (user, video) = (|id| UserId::parse(id).expect("an id"), |id| VideoId::parse(id).expect("an id"));
        let shards = ["u1", "u2", "lin", "mei", "ava"].map(|id| contract.reverse_shard(&user(id)));
        let parts = [0, 1, 2, 3].map(|shard| contract.part(&video("V9001"), shard));
        assert_eq!((shards, parts), ([2, 3, 3, 2, 2], [0, 0, 0, 1]));
    }

    proptest! {
        #[test]
        fn every_key_has_its_place(video in "[a-z0-9]{1,12}", user in "[a-z0-9]{1,12}", shards in 1u32..64, parts in 1u32..9) {
            let contract = Contract::parse(&frozen(shards, parts)).expect("known names");
            let shard = contract.reverse_shard(&UserId::parse(&user).expect("an id"));
            prop_assert!(shard < contract.reverse_shards());
            prop_assert!(contract.part(&VideoId::parse(&video).expect("an id"), shard) < parts);
        }
    }
}
