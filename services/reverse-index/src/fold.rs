//! What a batch of events brings to each part, decided without I/O: one row per relation at its highest version.
//!
//! Folding first is what makes one set-based statement possible, and it changes nothing: a version that another of the
//! same batch exceeds would have been overwritten.

use std::collections::{BTreeMap, HashMap};

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::lane::Offset;
use likewise_domain::relation::{LikeState, RelationChanged};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::contract::Contract;

/// A relation as a part has to know it from now on, unless it knows a higher version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The video.
    pub video: VideoId,
    /// The user.
    pub user: UserId,
    /// The user's shard.
    pub reverse_shard: u32,
    /// Version of the relation.
    pub version: u64,
    /// When it entered LIKED, by its transaction; `None` for UNLIKED.
    pub liked_at: Option<OffsetDateTime>,
}

/// What one part gets of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The part.
    pub part: u32,
    /// Sorted by video and user, each pair once.
    pub items: Vec<Item>,
    /// Place of the last event of the batch that belongs here.
    pub last: (Offset, Uuid),
}

/// Splits a batch of one lane by part. Events come with their offsets, in the order of the lane.
#[must_use]
pub fn groups(contract: &Contract, events: impl IntoIterator<Item = (Offset, RelationChanged)>) -> Vec<Group> {
    let mut relations: HashMap<(VideoId, UserId), Item> = HashMap::new();
    let mut last: BTreeMap<u32, (Offset, Uuid)> = BTreeMap::new();
    for (offset, event) in events {
        let reverse_shard = contract.reverse_shard(&event.user_id);
        last.insert(contract.part(&event.video_id, reverse_shard), (offset, event.event_id));
        let key = (event.video_id.clone(), event.user_id.clone());
        if relations.get(&key).is_none_or(|item| item.version < event.version) {
            let liked_at = (event.state == LikeState::Liked).then_some(event.state_changed_at);
            let (video, user) = (event.video_id, event.user_id);
            relations.insert(key, Item { video, user, reverse_shard, version: event.version, liked_at });
        }
    }
    let mut items: BTreeMap<u32, Vec<Item>> = BTreeMap::new();
    for item in relations.into_values() {
        items.entry(contract.part(&item.video, item.reverse_shard)).or_default().push(item);
    }
    let group = |(part, mut items): (u32, Vec<Item>)| {
        items.sort_unstable_by(|one, other| (&one.video, &one.user).cmp(&(&other.video, &other.user)));
        last.get(&part).map(|last| Group { part, items, last: *last })
    };
    items.into_iter().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use likewise_domain::id::OperationId;
    use likewise_domain::relation::{Cause, Hidden};
    use time::Duration;

    use super::*;
    use crate::contract::Frozen;

    fn contract() -> Contract {
        let frozen = Frozen {
            generation: 1,
            hash_algorithm: "xxh64".to_owned(),
            hash_seed: 42,
            key_encoding: "lp32be".to_owned(),
            reverse_shards: 4,
            parts: 2,
            lanes: 1,
        };
        Contract::parse(&frozen).expect("known names")
    }

    /// `"+a12"`: user a likes at version 12; `-` unlikes. All of video V, one second apart.
    fn events(story: &str) -> Vec<(Offset, RelationChanged)> {
        let event = |(index, word): (usize, &str)| {
            let seq = u64::try_from(index).expect("short") + 1;
            let version = word[2..].parse().expect("a version");
            let state = if word.starts_with('+') { LikeState::Liked } else { LikeState::Unliked };
            let changed = RelationChanged {
                event_id: Uuid::from_u128(u128::from(seq)),
                user_id: UserId::parse(&word[1..2]).expect("an id"),
                video_id: VideoId::parse("V").expect("an id"),
                version,
                state,
                previous_state: LikeState::Unliked,
                shard: 0,
                epoch: 0,
                seq,
                state_changed_at: OffsetDateTime::UNIX_EPOCH + Duration::seconds(version.cast_signed()),
                operation_id: OperationId::parse("op").expect("an id"),
                cause: Cause::User,
                hidden: Hidden::default(),
            };
            (Offset { epoch: 0, seq }, changed)
        };
        story.split(' ').enumerate().map(event).collect()
    }

    fn check(story: &str, expected: &[&str]) {
        let groups = groups(&contract(), events(story));
        let mut found: Vec<String> = groups
            .iter()
            .flat_map(|group| &group.items)
            .map(|item| format!("{}{}{}", if item.liked_at.is_some() { '+' } else { '-' }, item.user, item.version))
            .collect();
        found.sort();
        assert_eq!(found, expected, "{story}");
        let last = groups.iter().map(|group| group.last.0.seq).max();
        assert_eq!(last, Some(u64::try_from(story.split(' ').count()).expect("short")), "{story}");
        assert!(groups.iter().all(|group| group.items.is_sorted_by(|one, other| one.user < other.user)), "{story}");
    }

    #[test]
    fn the_highest_version_of_a_batch_wins_in_whatever_order() {
        check("+a1 -a2 +a3", &["+a3"]);
        check("-a12 +a11", &["-a12"]);
        check("+a1 +b1 -a2 +c7", &["+b1", "+c7", "-a2"]);
        check("+a1 +a1", &["+a1"]);
    }

    #[test]
    fn a_part_learns_the_place_of_its_own_last_event_only() {
        let events = events("+a1 +b1 +c1 +d1 +e1 +f1 +g1 +h1");
        let groups = groups(&contract(), events.clone());
        assert_eq!(groups.len(), 2, "eight users meet both parts");
        for group in groups {
            let users: Vec<_> = group.items.iter().map(|item| item.user.clone()).collect();
            let last = events.iter().rfind(|(_, event)| users.contains(&event.user_id)).expect("some");
            assert_eq!(group.last, (last.0, last.1.event_id));
        }
    }
}
