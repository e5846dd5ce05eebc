//! What can be asked for, and why it may be refused. Plain values: a caller hands one over and may go away.

use crate::model::{Account, AccountState, LikersVisible, LikesVisible, Post, PostStatus, Visibility};

/// Settings of a new video.
#[derive(Debug, Clone)]
pub struct NewPost {
    /// Its id.
    pub post_id: String,
    /// Its author.
    pub author_id: String,
    /// Text.
    pub content: String,
    /// First status.
    pub status: PostStatus,
    /// Who may see it.
    pub visibility: Visibility,
    /// Who may see its likers.
    pub likers_visible: LikersVisible,
    /// Whether others see the count.
    pub count_visible: bool,
}

/// Changes of a video; `None` leaves a part as it is.
#[derive(Debug, Clone, Default)]
pub struct PostChanges {
    /// Text.
    pub content: Option<String>,
    /// Status.
    pub status: Option<PostStatus>,
    /// Who may see it.
    pub visibility: Option<Visibility>,
    /// Who may see its likers.
    pub likers_visible: Option<LikersVisible>,
    /// Whether others see the count.
    pub count_visible: Option<bool>,
}

/// An operator with a reason.
#[derive(Debug, Clone)]
pub struct Moderator {
    /// The operator.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// A change somebody asks for.
#[derive(Debug, Clone)]
pub enum Act {
    /// Opens an account.
    Register {
        /// The account.
        user: String,
        /// Its name.
        username: String,
    },
    /// Changes what others may see of an account.
    SetPrivacy {
        /// The account.
        user: String,
        /// Listed only to followers.
        is_private: Option<bool>,
        /// Who may see what it likes.
        likes_visible: Option<LikesVisible>,
    },
    /// Its owner changes the state of an account.
    SetOwnState {
        /// The account.
        user: String,
        /// The state.
        to: AccountState,
    },
    /// Its owner takes the deletion of an account back.
    RestoreAccount {
        /// The account.
        user: String,
    },
    /// One account blocks another, or no longer.
    Block {
        /// Who blocks.
        by: String,
        /// Who is blocked.
        other: String,
        /// Blocked from now on.
        on: bool,
    },
    /// One account follows another, or no longer.
    Follow {
        /// Who follows.
        by: String,
        /// Who is followed.
        other: String,
        /// Followed from now on.
        on: bool,
    },
    /// Creates a video.
    CreatePost(NewPost),
    /// Its author changes a video.
    UpdatePost {
        /// The author.
        author: String,
        /// The video.
        post: String,
        /// The version the author had seen.
        version: u64,
        /// What changes.
        changes: PostChanges,
    },
    /// Its author deletes a video, or takes that back.
    DeletePost {
        /// The author.
        author: String,
        /// The video.
        post: String,
        /// Deleted from now on.
        on: bool,
    },
    /// An operator changes the status of a video.
    Moderate {
        /// The video.
        post: String,
        /// The status.
        to: PostStatus,
        /// Who, and why.
        by: Moderator,
    },
    /// An operator changes the state of an account.
    SetState {
        /// The account.
        user: String,
        /// The state.
        to: AccountState,
        /// Who, and why.
        by: Moderator,
    },
    /// An operator says whether an account may be listed.
    SetListable {
        /// The account.
        user: String,
        /// Whether it may.
        listable: bool,
        /// Who, and why.
        by: Moderator,
    },
}

/// What an act left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// The account as it is now.
    Account(Account),
    /// The video as it is now.
    Post(Post),
    /// Nothing to show.
    Nothing,
}

/// Why an act was refused; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such account.
    #[error("there is no account {0}")]
    NoAccount(String),
    /// The account is deleted, deactivated or banned.
    #[error("the account is not active")]
    AccountNotActive,
    /// No such video, or not the caller's.
    #[error("there is no video {0} of this author")]
    NoPost(String),
    /// The id belongs to another author's video.
    #[error("the video id is taken")]
    PostIdTaken,
    /// A living account has the name.
    #[error("the username is taken")]
    UsernameTaken,
    /// The video was changed since the caller looked.
    #[error("the video has version {0} now; look again")]
    VersionConflict(u64),
    /// The video is deleted.
    #[error("the video is deleted; restore it first")]
    PostDeleted,
    /// The table of transitions has no such step.
    #[error("{0} cannot become {1}")]
    Transition(String, String),
    /// The time in which a deletion can be taken back is over.
    #[error("the time in which this could be restored is over")]
    GraceOver,
    /// An account cannot do this to itself.
    #[error("an account cannot do this to itself")]
    Oneself,
}

/// Why an act was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database did not do it, or did not say so.
    #[error("store a change")]
    Store(#[from] crate::store::Error),
    /// The process is ending.
    #[error("the process is ending")]
    Stopping,
}
