//! Accounts and videos as this service keeps them. The numbers are those of `likewise.policy.v1` and of the tables.

use time::OffsetDateTime;

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $code:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$item_doc])* $item),+ }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$item),+];

            /// Its number.
            #[must_use]
            pub const fn code(self) -> i16 {
                match self { $(Self::$item => $code),+ }
            }

            /// Reads a number.
            #[must_use]
            pub const fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(Self::$item),)+ _ => None }
            }
        }
    };
}

codes! {
    /// State of an account.
    AccountState {
        /// In use.
        Active = 2,
        /// Switched off by its owner.
        Deactivated = 3,
        /// Banned by an operator.
        Banned = 4,
        /// Deleted by its owner.
        Deleted = 5,
    }
}

codes! {
    /// Who may see what an account likes.
    LikesVisible {
        /// Everyone.
        Everyone = 1,
        /// Friends.
        Friends = 2,
        /// Nobody.
        Nobody = 3,
    }
}

codes! {
    /// Life cycle of a video; whether it is deleted stands beside it.
    PostStatus {
        /// Not published yet.
        Draft = 2,
        /// Waits for its time.
        Scheduled = 3,
        /// Waits for moderation.
        UnderReview = 4,
        /// Published.
        Published = 5,
        /// Taken down by moderation.
        TakenDown = 6,
    }
}

codes! {
    /// Who may see a video.
    Visibility {
        /// Everyone.
        Public = 1,
        /// Friends of the author.
        Friends = 2,
        /// The author alone.
        Private = 3,
    }
}

codes! {
    /// Who may see the likers of a video.
    LikersVisible {
        /// Everyone.
        Everyone = 1,
        /// The author.
        AuthorOnly = 2,
        /// Nobody.
        Nobody = 3,
    }
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its id.
    pub user_id: String,
    /// Unique among living accounts.
    pub username: String,
    /// State.
    pub state: AccountState,
    /// Listed only to followers.
    pub is_private: bool,
    /// False: private to all.
    pub listable: bool,
    /// Who may see what it likes.
    pub likes_visible: LikesVisible,
    /// Grows with each change.
    pub version: u64,
    /// When it was deleted.
    pub deleted_at: Option<OffsetDateTime>,
    /// What a restore of a deleted account goes back to: a ban outlives a deletion.
    pub restore_state: Option<AccountState>,
}

/// A video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// Its id.
    pub post_id: String,
    /// Its author.
    pub author_id: String,
    /// Text.
    pub content: String,
    /// Life cycle.
    pub status: PostStatus,
    /// Who may see it.
    pub visibility: Visibility,
    /// Who may see its likers.
    pub likers_visible: LikersVisible,
    /// Whether others see the count.
    pub count_visible: bool,
    /// Grows with each change.
    pub version: u64,
    /// Creation.
    pub created_at: OffsetDateTime,
    /// Last change.
    pub updated_at: OffsetDateTime,
    /// When it was deleted.
    pub deleted_at: Option<OffsetDateTime>,
}

/// How one account stands to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pair {
    /// The other.
    pub other_id: String,
    /// Both follow each other.
    pub friends: bool,
    /// One of the two blocks the other.
    pub blocked: bool,
    /// The first follows the other.
    pub follows: bool,
}

/// What others are told of: the object as it is after the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An account changed.
    Account(Account),
    /// A video changed.
    Post(Post),
    /// The set of accounts that block or are blocked by an account changed.
    BlockSet {
        /// The account.
        user_id: String,
        /// Version of the set.
        version: u64,
    },
}
