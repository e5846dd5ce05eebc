//! The relation: does a user like a video now.
//!
//! One value per (user, video), versioned. The version that counts everywhere is the *effective* one: a shard that lost
//! the tail of its history takes a new epoch, and every version of the new epoch is above every version of the old one.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::id::{OperationId, UserId, VideoId};

/// Bits of a version that count within one epoch; the bits above are the epoch.
pub const VERSION_EPOCH_SHIFT: u32 = 40;

/// Whether the user likes the video. A relation that was never touched is UNLIKED at version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LikeState {
    /// The heart is red.
    Liked,
    /// The heart is empty.
    Unliked,
}

impl LikeState {
    /// The number the tables keep: 1 LIKED, 2 UNLIKED.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Liked => 1,
            Self::Unliked => 2,
        }
    }

    /// Reads the number the tables keep.
    #[must_use]
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            1 => Some(Self::Liked),
            2 => Some(Self::Unliked),
            _ => None,
        }
    }

    /// 1 for LIKED, 0 for UNLIKED: what the relation adds to a count.
    #[must_use]
    pub const fn weight(self) -> i64 {
        match self {
            Self::Liked => 1,
            Self::Unliked => 0,
        }
    }
}

/// The version that counts: `max(stored, epoch << 40)`. A stored version of an older epoch is lifted to the floor of
/// the present one, so whatever a lost tail handed out is below the next change.
#[must_use]
pub const fn effective_version(stored: u64, epoch: u32) -> u64 {
    let floor = (epoch as u64) << VERSION_EPOCH_SHIFT;
    if stored > floor { stored } else { floor }
}

/// Why a relation changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The user's command.
    User,
    /// The account was deleted.
    AccountDeleted,
    /// The video was deleted and its grace period ended.
    VideoDeleted,
    /// An operator, with approval.
    Operator,
    /// Stated again after a lost tail.
    Restated,
    /// The account came back within its grace period, and with it the likes its deletion took.
    AccountRestored,
}

impl Cause {
    /// The number the tables keep.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::User => 1,
            Self::AccountDeleted => 2,
            Self::VideoDeleted => 3,
            Self::Operator => 4,
            Self::Restated => 5,
            Self::AccountRestored => 6,
        }
    }

    /// Reads the number the tables keep.
    #[must_use]
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            1 => Some(Self::User),
            2 => Some(Self::AccountDeleted),
            3 => Some(Self::VideoDeleted),
            4 => Some(Self::Operator),
            5 => Some(Self::Restated),
            6 => Some(Self::AccountRestored),
            _ => None,
        }
    }
}

/// Why a like is not counted, though its user likes the video: a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HiddenReasons(i16);

impl HiddenReasons {
    /// Counted.
    pub const NONE: Self = Self(0);
    /// A risk act excludes it.
    pub const RISK: Self = Self(1);
    /// The account is deactivated or banned.
    pub const POLICY: Self = Self(2);

    /// The number the tables keep: 1 RISK, 2 POLICY, 3 both.
    #[must_use]
    pub const fn code(self) -> i16 {
        self.0
    }

    /// Reads the number the tables keep.
    #[must_use]
    pub const fn from_code(code: i16) -> Option<Self> {
        if code >= 0 && code <= 3 { Some(Self(code)) } else { None }
    }

    /// The reasons of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every reason of `other` is among these.
    #[must_use]
    pub const fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The second axis of a relation: whether the like counts. It has versions of its own, so that it can change without the
/// relation, and folds the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hidden {
    /// Version; 0 for an axis that never changed in epoch 0.
    pub version: u64,
    /// Why the like is not counted; none when it is.
    pub reasons: HiddenReasons,
}

impl Hidden {
    /// The axis with these reasons: at its effective version, or at the next one if the reasons differ.
    #[must_use]
    pub const fn with(self, reasons: HiddenReasons, epoch: u32) -> Self {
        let version = effective_version(self.version, epoch);
        Self { version: if self.reasons.0 == reasons.0 { version } else { version + 1 }, reasons }
    }
}

/// A committed change of one relation, as it travels through its lane: the absolute state, never a number to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationChanged {
    /// Random id drawn in the transaction.
    pub event_id: Uuid,
    /// The user.
    pub user_id: UserId,
    /// The video.
    pub video_id: VideoId,
    /// Version after the change.
    pub version: u64,
    /// State after the change.
    pub state: LikeState,
    /// State before the change, for audit only.
    pub previous_state: LikeState,
    /// Shard that committed the change.
    pub shard: u16,
    /// Epoch of the shard.
    pub epoch: u32,
    /// Dense number of the change within shard and epoch.
    pub seq: u64,
    /// When the relation entered the state, by the transaction.
    pub state_changed_at: OffsetDateTime,
    /// The operation that caused it.
    pub operation_id: OperationId,
    /// Why.
    pub cause: Cause,
    /// The second axis, as it is after the change.
    pub hidden: Hidden,
}

/// A committed change of the second axis alone. It tells the whole relation, so that whoever folds it needs nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationHiddenChanged {
    /// Random id drawn in the transaction.
    pub event_id: Uuid,
    /// The user.
    pub user_id: UserId,
    /// The video.
    pub video_id: VideoId,
    /// The axis after the change.
    pub hidden: Hidden,
    /// The reasons before the change, for audit only.
    pub previous_reasons: HiddenReasons,
    /// Version of the relation, which did not change.
    pub version: u64,
    /// State of the relation, which did not change.
    pub state: LikeState,
    /// When the relation entered its state.
    pub state_changed_at: OffsetDateTime,
    /// Shard that committed the change.
    pub shard: u16,
    /// Epoch of the shard.
    pub epoch: u32,
    /// Dense number of the change within shard and epoch.
    pub seq: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versions_start_small_in_epoch_zero() {
        assert_eq!(effective_version(0, 0), 0);
        assert_eq!(effective_version(11, 0), 11);
    }

    #[test]
    fn the_second_axis_has_a_new_version_only_when_its_reasons_change() {
        let counted = Hidden::default();
        let hidden = counted.with(HiddenReasons::RISK, 0);
        assert_eq!(hidden, Hidden { version: 1, reasons: HiddenReasons::RISK });
        assert_eq!(hidden.with(HiddenReasons::RISK, 0), hidden);
        let both = hidden.with(HiddenReasons::RISK.and(HiddenReasons::POLICY), 0);
        assert!(both.version == 2 && both.reasons.holds(HiddenReasons::POLICY));
        assert_eq!(both.with(HiddenReasons::NONE, 1).version, (1 << VERSION_EPOCH_SHIFT) + 1, "above the old epoch");
    }

    proptest! {
        #[test]
        fn inv_03_a_new_epoch_is_above_every_version_of_the_old(stored in 0u64..1 << 40, epoch in 0u32..1000) {
            let old = effective_version(((u64::from(epoch)) << VERSION_EPOCH_SHIFT) + stored, epoch);
            prop_assert!(effective_version(0, epoch + 1) >= old || stored >= 1 << 40);
            prop_assert!(effective_version(old, epoch + 1) + 1 > old);
        }
    }
}
