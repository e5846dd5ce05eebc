//! What a batch of relation changes asks of each partition: folded first to one row per relation at its highest version,
//! then split by the partition that owns the relation's virtual bucket. Pure; the statement that writes folds again
//! against what is stored, so order, repeats and cuts of batches change nothing.

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::lane::Offset;
use likewise_domain::relation::LikeState;
use uuid::Uuid;

use crate::bucket::BucketSpace;
use crate::route::Routes;

/// One message of a lane that says what a relation became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its place in the lane.
    pub offset: Offset,
    /// Id of the event.
    pub event_id: Uuid,
    /// Dense number of the change within its shard; equals `offset.seq`, or there is something to find.
    pub source_seq: u64,
    /// The video.
    pub video: VideoId,
    /// The user.
    pub user: UserId,
    /// Version of the relation after the change; at least 1.
    pub version: i64,
    /// State after the change.
    pub state: LikeState,
}

/// A change with the virtual bucket of its relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed<'a> {
    /// The change.
    pub change: &'a Change,
    /// Virtual bucket of the relation.
    pub vbucket: u32,
}

/// The part of a batch that one partition applies in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group<'a> {
    /// Index into the partitions of the routes.
    pub partition: usize,
    /// Every message of the batch whose relation is counted there, in offset order.
    pub messages: Vec<&'a Change>,
    /// One row per relation at its highest version, sorted by (video, user).
    pub relations: Vec<Placed<'a>>,
    /// Touched virtual buckets with the route epoch each is written under, sorted.
    pub fences: Vec<(u32, u64)>,
}

/// Keeps, of each relation, the change with the highest version (the first of equal ones), sorted by (video, user).
#[must_use]
pub fn fold_batch(mut changes: Vec<Placed<'_>>) -> Vec<Placed<'_>> {
    // The sort is stable, so equal versions keep their order and `dedup` keeps the first.
    changes.sort_by(|Placed { change: a, .. }, Placed { change: b, .. }| {
        (&a.video, &a.user, b.version).cmp(&(&b.video, &b.user, a.version))
    });
    changes.dedup_by(|next, kept| next.change.video == kept.change.video && next.change.user == kept.change.user);
    changes
}

/// Splits a batch of one lane and one epoch under one manifest. Only partitions with something to do appear.
#[must_use]
pub fn split<'a>(changes: &'a [Change], space: &BucketSpace, routes: &Routes) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = (0..routes.partitions().len())
        .map(|partition| Group { partition, messages: Vec::new(), relations: Vec::new(), fences: Vec::new() })
        .collect();
    for change in changes {
        let vbucket = space.vbucket(&change.video, &change.user);
        // Routes are verified to cover the bucket space.
        let Some(route) = routes.of(vbucket) else { continue };
        let group = &mut groups[route.partition];
        group.messages.push(change);
        group.relations.push(Placed { change, vbucket });
        group.fences.push((vbucket, route.epoch));
    }
    groups.retain(|group| !group.messages.is_empty());
    for group in &mut groups {
        group.relations = fold_batch(std::mem::take(&mut group.relations));
        group.fences.sort_unstable();
        group.fences.dedup();
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use likewise_domain::fold::{Projected, fold};
    use proptest::prelude::*;

    use super::*;
    use crate::bucket::Contract;
    use crate::route::{deal, seal};

    fn change(number: u64, video: u8, user: u8, version: i64) -> Change {
        // One truth: odd versions like, even ones unlike, however often they are told.
        let state = if version % 2 == 1 { LikeState::Liked } else { LikeState::Unliked };
        Change {
            offset: Offset { epoch: 0, seq: number },
            event_id: Uuid::from_u128(u128::from(number)),
            source_seq: number,
            video: VideoId::parse(&format!("v{video}")).expect("an id"),
            user: UserId::parse(&format!("u{user}")).expect("an id"),
            version,
            state,
        }
    }

    fn history() -> impl Strategy<Value = Vec<Change>> {
        prop::collection::vec((0u8..3, 0u8..4, 1i64..7), 0..60).prop_map(|steps| {
            (1..).zip(steps).map(|(number, (video, user, version))| change(number, video, user, version)).collect()
        })
    }

    /// What a partition's tables hold after a list of groups, by the domain's fold.
    #[derive(Default, PartialEq, Eq, Debug)]
    struct Model {
        relations: BTreeMap<(String, String), (u64, bool)>,
        buckets: BTreeMap<(String, u32), i64>,
    }

    impl Model {
        fn apply(&mut self, placed: &[Placed<'_>]) {
            for Placed { change, vbucket } in placed {
                let key = (change.video.to_string(), change.user.to_string());
                let held = self.relations.get(&key).map_or(Projected::UNSEEN, |&(version, liked)| Projected {
                    version,
                    state: if liked { LikeState::Liked } else { LikeState::Unliked },
                });
                let next = Projected { version: change.version.unsigned_abs(), state: change.state };
                if let Some((next, delta)) = fold(held, next) {
                    self.relations.insert(key, (next.version, next.state == LikeState::Liked));
                    let count = self.buckets.entry((change.video.to_string(), *vbucket)).or_default();
                    *count += delta;
                    assert!(*count >= 0, "inv_06: never below zero");
                }
            }
            self.buckets.retain(|_, count| *count > 0);
        }
    }

    fn setup(vbuckets: u32, partitions: usize) -> (BucketSpace, Routes) {
        let space = BucketSpace::new(Contract {
            version: 1,
            hash_algorithm: "xxh64".into(),
            hash_seed: 3,
            key_encoding: "lp32be".into(),
            vbuckets,
        })
        .expect("known names");
        let names: Vec<String> = (0..partitions).map(|number| format!("p{number:02}")).collect();
        let items = deal(vbuckets, &names);
        let routes = Routes::verify(1, &items, vbuckets, &seal(&items)).expect("a whole manifest");
        (space, routes)
    }

    proptest! {
        #[test]
        fn inv_03_folding_the_batch_first_changes_nothing(history in history(), cut in 1usize..20) {
            let (space, routes) = setup(8, 3);
            let (mut plain, mut batched) = (Model::default(), Model::default());
            for change in &history {
                plain.apply(&[Placed { change, vbucket: space.vbucket(&change.video, &change.user) }]);
            }
            for batch in history.chunks(cut) {
                for group in split(batch, &space, &routes) {
                    batched.apply(&group.relations);
                }
            }
            prop_assert_eq!(plain, batched);
        }

        #[test]
        fn groups_are_a_partition_of_the_batch(history in history(), partitions in 1usize..5) {
            let (space, routes) = setup(16, partitions);
            let groups = split(&history, &space, &routes);
            let mut seen = BTreeSet::new();
            for group in &groups {
                let mut touched = BTreeSet::new();
                for message in &group.messages {
                    prop_assert!(seen.insert(message.offset), "in one group only");
                    touched.insert(space.vbucket(&message.video, &message.user));
                }
                let fenced: Vec<u32> = group.fences.iter().map(|fence| fence.0).collect();
                prop_assert_eq!(touched.into_iter().collect::<Vec<_>>(), fenced);
                for vbucket in group.fences.iter().map(|fence| fence.0) {
                    prop_assert_eq!(routes.of(vbucket).map(|route| route.partition), Some(group.partition));
                }
                prop_assert!(group.messages.is_sorted_by(|a, b| a.offset < b.offset));
                prop_assert!(group.relations.is_sorted_by(|a, b| {
                    (&a.change.video, &a.change.user) < (&b.change.video, &b.change.user)
                }), "sorted, each relation once");
            }
            prop_assert_eq!(seen.len(), history.len());
        }
    }

    #[test]
    fn case_05_the_highest_version_stands_for_its_relation() {
        let changes = [change(1, 0, 0, 12), change(2, 0, 0, 11), change(3, 0, 0, 12)];
        let kept = fold_batch(changes.iter().map(|change| Placed { change, vbucket: 0 }).collect());
        assert_eq!(kept.iter().map(|placed| placed.change.offset.seq).collect::<Vec<_>>(), [1]);
    }
}
