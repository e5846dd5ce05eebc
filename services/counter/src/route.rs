//! Where every virtual bucket is counted: one partition each, under a route epoch, by a sealed manifest. A manifest whose
//! rows, count or checksum do not agree is refused whole; nothing is routed by a part of one.

use sha2::{Digest, Sha256};

/// One row of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The virtual bucket.
    pub vbucket: u32,
    /// Name of the partition that owns it.
    pub partition: String,
    /// Epoch of the route; grows with each move of the bucket.
    pub route_epoch: u64,
}

/// What a sealed manifest says about its own rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// Number of rows.
    pub row_count: usize,
    /// SHA-256 over the rows by vbucket, see [`seal`].
    pub checksum: Vec<u8>,
}

/// Why a manifest cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestFault {
    /// The rows are not exactly the buckets `0..vbuckets`.
    #[error("manifest {manifest} does not route every vbucket exactly once: at place {place} stands vbucket {found:?}")]
    NotEveryBucket {
        /// The manifest.
        manifest: i64,
        /// The vbucket that belongs there.
        place: u32,
        /// What stands there.
        found: Option<u32>,
    },
    /// Rows and seal differ.
    #[error("manifest {manifest} has other rows than it was sealed with")]
    SealBroken {
        /// The manifest.
        manifest: i64,
    },
}

/// Routes of a first generation: the buckets dealt to the partitions in turn, at route epoch 1.
#[must_use]
pub fn deal(vbuckets: u32, partitions: &[String]) -> Vec<Item> {
    (0..vbuckets)
        .zip(partitions.iter().cycle())
        .map(|(vbucket, partition)| Item { vbucket, partition: partition.clone(), route_epoch: 1 })
        .collect()
}

/// Count and checksum of rows: SHA-256 over `vbucket:partition:route_epoch\n`, in the order given.
#[must_use]
pub fn seal(items: &[Item]) -> Seal {
    let mut hash = Sha256::new();
    for item in items {
        hash.update(format!("{}:{}:{}\n", item.vbucket, item.partition, item.route_epoch));
    }
    Seal { row_count: items.len(), checksum: hash.finalize().to_vec() }
}

/// Where one virtual bucket is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Index into [`Routes::partitions`].
    pub partition: usize,
    /// Epoch of the route.
    pub epoch: u64,
}

/// A verified manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    manifest: i64,
    partitions: Vec<String>,
    by_vbucket: Vec<Route>,
}

impl Routes {
    /// Checks the rows of a manifest (sorted by vbucket) against the bucket space and the seal.
    ///
    /// # Errors
    /// [`ManifestFault`] says what disagrees.
    pub fn verify(manifest: i64, items: &[Item], vbuckets: u32, sealed: &Seal) -> Result<Self, ManifestFault> {
        let rows = u32::try_from(items.len()).unwrap_or(u32::MAX);
        for place in 0..vbuckets.max(rows) {
            let found = items.get(place as usize).map(|item| item.vbucket);
            if place >= vbuckets || found != Some(place) {
                return Err(ManifestFault::NotEveryBucket { manifest, place, found });
            }
        }
        if seal(items) != *sealed {
            return Err(ManifestFault::SealBroken { manifest });
        }
        let mut partitions: Vec<String> = items.iter().map(|item| item.partition.clone()).collect();
        partitions.sort();
        partitions.dedup();
        let by_vbucket = items
            .iter()
            .map(|item| Route {
                partition: partitions.binary_search(&item.partition).unwrap_or_default(),
                epoch: item.route_epoch,
            })
            .collect();
        Ok(Self { manifest, partitions, by_vbucket })
    }

    /// The manifest these routes were read from.
    #[must_use]
    pub const fn manifest(&self) -> i64 {
        self.manifest
    }

    /// Names of the partitions that own a bucket, sorted.
    #[must_use]
    pub fn partitions(&self) -> &[String] {
        &self.partitions
    }

    /// The route of a bucket; `None` past the bucket space.
    #[must_use]
    pub fn of(&self, vbucket: u32) -> Option<Route> {
        self.by_vbucket.get(vbucket as usize).copied()
    }

    /// The buckets one partition owns, as a bit string for PostgreSQL's `get_bit(bytea, n)` (bit 0 is the lowest bit of
    /// the first byte). Sums read no other rows, so a copy that stands elsewhere is never added.
    #[must_use]
    pub fn owned_bits(&self, partition: usize) -> Vec<u8> {
        let mut bits = vec![0; self.by_vbucket.len().div_ceil(8)];
        for (vbucket, route) in self.by_vbucket.iter().enumerate() {
            if route.partition == partition {
                bits[vbucket / 8] |= 1 << (vbucket % 8);
            }
        }
        bits
    }

    /// Buckets per partition, in the order of [`partitions`](Self::partitions).
    #[must_use]
    pub fn owned_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.partitions.len()];
        for route in &self.by_vbucket {
            counts[route.partition] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("p{number:02}")).collect()
    }

    #[test]
    fn buckets_are_dealt_in_turn() {
        let items = deal(7, &names(3));
        let routes = Routes::verify(1, &items, 7, &seal(&items)).expect("a whole manifest");
        assert_eq!(routes.owned_counts(), [3, 2, 2]);
        assert_eq!(routes.of(4), Some(Route { partition: 1, epoch: 1 }));
        assert_eq!(routes.of(7), None);
        assert_eq!(routes.owned_bits(0), [0b0100_1001]);
    }

    #[test]
    fn a_manifest_that_lacks_a_bucket_or_has_one_twice_is_refused() {
        let items = deal(8, &names(2));
        let sealed = seal(&items);
        for broken in [items[..7].to_vec(), [items.clone(), vec![Item { vbucket: 8, ..items[0].clone() }]].concat(), {
            let mut twice = items.clone();
            twice[3].vbucket = 2;
            twice
        }] {
            let fault = Routes::verify(1, &broken, 8, &seal(&broken)).expect_err("not every bucket once");
            assert!(matches!(fault, ManifestFault::NotEveryBucket { .. }), "{fault}");
        }
        let mut moved = items;
        moved[5].partition = "p00".into();
        assert_eq!(Routes::verify(1, &moved, 8, &sealed), Err(ManifestFault::SealBroken { manifest: 1 }));
    }
}
