//! What a count says of itself: how current it is, whether it covers a change, and how much of it a caller may see. Decided
//! without I/O, and from what was known *before* the number was read, so that no label ever claims too much.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use likewise_domain::id::UserId;
use likewise_domain::lane::{Offset, Position};
use likewise_domain::visibility::{Sight, VideoPolicy, may_see_count};
use time::OffsetDateTime;

/// How far the counter had come: a lower bound for every number that is read after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Generation of the numbers.
    pub generation: u64,
    /// First offset not covered, by lane name.
    pub next_offsets: HashMap<String, Offset>,
    /// Everything committed before this is covered; `None` until that was shown once.
    pub covered_until: Option<OffsetDateTime>,
    /// The generation is known to lack something.
    pub incomplete: bool,
}

impl Progress {
    /// Whether the change at this position is covered.
    #[must_use]
    pub fn covers(&self, position: Position) -> bool {
        let lane = format!("rel-{:02}", position.shard);
        position.is_included_before(self.next_offsets.get(&lane).copied().unwrap_or(Offset::FIRST))
    }
}

/// A number and its parts, as the counter wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    /// What users see.
    pub display: u64,
    /// All LIKED relations.
    pub raw: u64,
    /// Excluded by risk.
    pub risk_hidden: u64,
    /// Excluded by policy.
    pub policy_hidden: u64,
    /// When it was computed.
    pub generated_at: OffsetDateTime,
    /// Names the snapshot it comes from.
    pub snapshot_id: String,
    /// It is known to lack something.
    pub approximate: bool,
}

/// A number with the progress that was known before it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The number.
    pub numbers: Numbers,
    /// What it covers at least.
    pub progress: Arc<Progress>,
}

/// How current a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// Covers everything committed up to the convergence window.
    Fresh,
    /// Behind the window.
    Stale,
    /// Something is known to be missing.
    Approximate,
}

impl Reading {
    /// How current it is at `now`. Judged by what the counter covers, not by the age of the row: a video nobody likes stays
    /// fresh.
    #[must_use]
    pub fn freshness(&self, now: OffsetDateTime, window: Duration) -> Freshness {
        if self.numbers.approximate || self.progress.incomplete {
            return Freshness::Approximate;
        }
        match self.progress.covered_until {
            Some(until) if now - until <= window => Freshness::Fresh,
            _ => Freshness::Stale,
        }
    }

    /// Whether it includes the change at this position. Never for a number that is known to lack something.
    #[must_use]
    pub fn covers(&self, position: Position) -> bool {
        !self.numbers.approximate && !self.progress.incomplete && self.progress.covers(position)
    }
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Viewer {
    /// Nobody said.
    Anonymous,
    /// An end user.
    User(UserId),
    /// A service or an operator: sees every number with its parts.
    Entitled,
}

impl Viewer {
    /// The end user, if it is one.
    #[must_use]
    pub const fn user(&self) -> Option<&UserId> {
        match self {
            Self::User(user) => Some(user),
            Self::Anonymous | Self::Entitled => None,
        }
    }
}

/// Whether and how a number may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CountVisibility {
    /// It may.
    Visible,
    /// The author does not show it to others.
    HiddenByAuthor,
    /// The caller may not see the video.
    NotVisible,
    /// The video is gone.
    VideoGone,
}

/// What a viewer who has this sight of a video may know of its number.
#[must_use]
pub fn visibility(policy: &VideoPolicy, sight: Sight, viewer: &Viewer) -> CountVisibility {
    use likewise_domain::visibility::VideoStatus;
    if *viewer == Viewer::Entitled {
        return match policy.status {
            VideoStatus::NotFound => CountVisibility::NotVisible,
            VideoStatus::Gone => CountVisibility::VideoGone,
            VideoStatus::Unpublished | VideoStatus::Published => CountVisibility::Visible,
        };
    }
    match sight {
        Sight::Visible if may_see_count(policy, viewer.user()) => CountVisibility::Visible,
        Sight::Visible => CountVisibility::HiddenByAuthor,
        Sight::NotVisible => CountVisibility::NotVisible,
        Sight::Gone => CountVisibility::VideoGone,
    }
}

/// A count as it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// `None` when the authority could not say.
    pub visibility: Option<CountVisibility>,
    /// The number; `None` where it may not be shown or is not known.
    pub reading: Option<Arc<Reading>>,
    /// The number's parts go with it.
    pub parts: bool,
    /// How current it is; `None` where no number may be shown.
    pub freshness: Option<Freshness>,
    /// Whether it covers the position asked about; `None` without one, or where no number may be shown.
    pub covers: Option<bool>,
}

/// What is asked of every count of a request.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Who asks.
    pub viewer: &'a Viewer,
    /// The change to be covered.
    pub position: Option<Position>,
    /// The time.
    pub now: OffsetDateTime,
    /// Convergence window.
    pub window: Duration,
}

/// Shows what may be shown of a number that is perhaps not known. An unknown number is absent and stale, never 0.
#[must_use]
pub fn show(visibility: Option<CountVisibility>, reading: Option<Arc<Reading>>, question: Question<'_>) -> Shown {
    let Question { viewer, position, now, window } = question;
    if visibility != Some(CountVisibility::Visible) {
        return Shown { visibility, reading: None, parts: false, freshness: None, covers: None };
    }
    let freshness = reading.as_ref().map_or(Freshness::Stale, |reading| reading.freshness(now, window));
    let covers = position.map(|position| reading.as_ref().is_some_and(|reading| reading.covers(position)));
    Shown { visibility, reading, parts: *viewer == Viewer::Entitled, freshness: Some(freshness), covers }
}

#[cfg(test)]
mod tests {
    use likewise_domain::visibility::{Audience, LikersVisible, VideoStatus};
    use time::Duration as Span;

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;
    const WINDOW: Duration = Duration::from_secs(5);

    fn reading(covered_ago_s: Option<i64>, approximate: bool, incomplete: bool) -> Arc<Reading> {
        let progress = Progress {
            generation: 1,
            next_offsets: HashMap::from([("rel-03".to_owned(), Offset { epoch: 0, seq: 10 })]),
            covered_until: covered_ago_s.map(|ago| NOW - Span::seconds(ago)),
            incomplete,
        };
        let numbers = Numbers {
            display: 7,
            raw: 9,
            risk_hidden: 1,
            policy_hidden: 1,
            generated_at: NOW - Span::days(30),
            snapshot_id: "g1.p4".to_owned(),
            approximate,
        };
        Arc::new(Reading { numbers, progress: Arc::new(progress) })
    }

    fn at(shard: u16, epoch: u32, seq: u64) -> Position {
        Position { shard, offset: Offset { epoch, seq } }
    }

    fn ask(viewer: &Viewer) -> Question<'_> {
        Question { viewer, position: Some(at(3, 0, 9)), now: NOW, window: WINDOW }
    }

    #[test]
    fn freshness_is_judged_by_what_is_covered() {
        let of = |ago, approximate, incomplete| reading(ago, approximate, incomplete).freshness(NOW, WINDOW);
        assert_eq!(of(Some(5), false, false), Freshness::Fresh, "however old the row is");
        assert_eq!(of(Some(6), false, false), Freshness::Stale);
        assert_eq!(of(None, false, false), Freshness::Stale, "never shown");
        assert_eq!(of(Some(0), true, false), Freshness::Approximate);
        assert_eq!(of(Some(60), false, true), Freshness::Approximate);
        assert_eq!(of(Some(-2), false, false), Freshness::Fresh, "a counter whose clock is ahead");
    }

    #[test]
    fn a_position_is_covered_only_below_the_next_offset_of_its_lane() {
        let known = reading(Some(0), false, false);
        assert!(known.covers(at(3, 0, 9)));
        assert!(!known.covers(at(3, 0, 10)), "the first offset not covered");
        assert!(!known.covers(at(3, 1, 1)), "another epoch");
        assert!(!known.covers(at(4, 0, 1)), "a lane nobody spoke of");
        assert!(known.covers(at(4, 0, 0)), "a relation that never changed");
        assert!(!reading(Some(0), true, false).covers(at(3, 0, 1)), "approximate covers nothing");
        assert!(!reading(Some(0), false, true).covers(at(3, 0, 1)), "incomplete covers nothing");
    }

    #[test]
    fn scn_j09_an_unknown_number_is_absent_and_never_zero() {
        let shown = show(Some(CountVisibility::Visible), None, ask(&Viewer::Anonymous));
        assert_eq!((shown.reading, shown.freshness, shown.covers), (None, Some(Freshness::Stale), Some(false)));
        assert_eq!(shown.visibility, Some(CountVisibility::Visible));
    }

    #[test]
    fn inv_23_no_number_leaves_where_it_may_not_be_shown() {
        let forbidden = [CountVisibility::HiddenByAuthor, CountVisibility::NotVisible, CountVisibility::VideoGone];
        for visibility in forbidden.map(Some).into_iter().chain([None]) {
            for viewer in [Viewer::Anonymous, Viewer::Entitled] {
                let shown = show(visibility, Some(reading(Some(0), false, false)), ask(&viewer));
                assert_eq!((shown.reading, shown.covers, shown.freshness), (None, None, None), "{visibility:?}");
            }
        }
    }

    #[test]
    fn inv_23_parts_are_for_the_entitled() {
        let seen =
            |viewer: &Viewer| show(Some(CountVisibility::Visible), Some(reading(Some(0), false, false)), ask(viewer));
        let user = Viewer::User(UserId::parse("lin").expect("an id"));
        assert!(!seen(&user).parts && !seen(&Viewer::Anonymous).parts);
        assert!(seen(&Viewer::Entitled).parts);
        assert_eq!(seen(&user).covers, Some(true));
    }

    #[test]
    fn hidden_by_author_does_not_bind_the_author() {
        let [ava, lin] = ["ava", "lin"].map(|id| UserId::parse(id).expect("an id"));
        let policy = VideoPolicy {
            status: VideoStatus::Published,
            audience: Audience::Everyone,
            author: Some(ava.clone()),
            likers_visible: LikersVisible::Everyone,
            count_visible: false,
        };
        let of = |viewer: Viewer, sight| visibility(&policy, sight, &viewer);
        assert_eq!(of(Viewer::User(lin.clone()), Sight::Visible), CountVisibility::HiddenByAuthor);
        assert_eq!(of(Viewer::User(ava), Sight::Visible), CountVisibility::Visible);
        assert_eq!(of(Viewer::Anonymous, Sight::Visible), CountVisibility::HiddenByAuthor);
        assert_eq!(of(Viewer::Entitled, Sight::Visible), CountVisibility::Visible);
        assert_eq!(of(Viewer::User(lin), Sight::NotVisible), CountVisibility::NotVisible);
        assert_eq!(of(Viewer::Anonymous, Sight::Gone), CountVisibility::VideoGone);
        let missing = visibility(&VideoPolicy::NOT_FOUND, Sight::NotVisible, &Viewer::Entitled);
        assert_eq!(missing, CountVisibility::NotVisible);
    }
}
