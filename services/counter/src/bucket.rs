//! Which virtual bucket a relation belongs to: computed by the contract stored with the bucket space, never by the
//! defaults of the running build. A relation keeps its bucket through like, unlike, replay and every move of buckets.

use likewise_domain::hash::{ContractError, HashContract};
use likewise_domain::id::{UserId, VideoId};

/// The words of a contract, as stored (or as settings propose them for the first start).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contract {
    /// Number of the bucket space.
    pub version: i32,
    /// Name in the registry of hash algorithms.
    pub hash_algorithm: String,
    /// Seed of the hash.
    pub hash_seed: u64,
    /// Name in the registry of key encodings.
    pub key_encoding: String,
    /// Number of virtual buckets.
    pub vbuckets: u32,
}

/// A contract this build can compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSpace {
    contract: Contract,
    hash: HashContract,
}

impl BucketSpace {
    /// Takes a contract.
    ///
    /// # Errors
    /// When this build does not know its algorithm or encoding, or it has no buckets.
    pub fn new(contract: Contract) -> Result<Self, ContractError> {
        let hash = HashContract::parse(
            &contract.hash_algorithm,
            contract.hash_seed,
            &contract.key_encoding,
            contract.vbuckets,
        )?;
        Ok(Self { contract, hash })
    }

    /// The words of the contract.
    #[must_use]
    pub const fn contract(&self) -> &Contract {
        &self.contract
    }

    /// Number of the bucket space.
    #[must_use]
    pub const fn version(&self) -> i32 {
        self.contract.version
    }

    /// Number of virtual buckets.
    #[must_use]
    pub const fn vbuckets(&self) -> u32 {
        self.hash.slots()
    }

    /// The virtual bucket of a relation, below [`vbuckets`](Self::vbuckets).
    #[must_use]
    pub fn vbucket(&self, video: &VideoId, user: &UserId) -> u32 {
        self.hash.slot(&[video.as_str(), user.as_str()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(seed: u64, vbuckets: u32) -> BucketSpace {
        BucketSpace::new(Contract {
            version: 1,
            hash_algorithm: "xxh64".into(),
            hash_seed: seed,
            key_encoding: "lp32be".into(),
            vbuckets,
        })
        .expect("known names")
    }

    // The file is checked by `golden/vbuckets.py`, an independent implementation. A change of these numbers would lose
    // every stored bucket.
    #[test]
    fn inv_15_golden_vbuckets() {
        let rows = include_str!("../golden/vbuckets.csv").lines().skip(1);
        let mut checked = 0;
        for row in rows {
            let [seed, vbuckets, video, user, expected] = row.split(',').collect::<Vec<_>>()[..] else {
                panic!("five columns: {row}");
            };
            let space = space(seed.parse().expect("a seed"), vbuckets.parse().expect("a number"));
            let video = VideoId::parse(video).expect("an id");
            let user = UserId::parse(user).expect("an id");
            assert_eq!(space.vbucket(&video, &user).to_string(), expected, "{row}");
            checked += 1;
        }
        assert!(checked > 5, "the file has rows");
    }

    #[test]
    fn inv_15_an_unknown_contract_is_refused() {
        let mut contract = space(0, 256).contract().clone();
        contract.hash_algorithm = "md5".into();
        assert!(BucketSpace::new(contract).is_err());
    }
}
