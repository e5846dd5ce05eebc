//! The merge of one list that is kept in several shards, and the exact meaning of "scanned".
//!
//! Every shard holds its part of the list in order. The merge always gives out the first of all, so a list that is read
//! page by page is the whole list in order. What makes paging safe is the *frontier*: per shard, the key of the last
//! candidate that was **popped**. Candidates are fetched ahead, and those that a page did not need stay unpopped; the
//! next page reads them again from the frontier. So nobody is skipped, and a page whose candidates were all filtered
//! still moves on.

use std::collections::VecDeque;

use time::OffsetDateTime;

use crate::id::UserId;

/// Place of a liker in the list of a video. Order: newest like first, then by user id, so that no two places are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LikerKey {
    /// When the relation entered LIKED, by its transaction.
    pub liked_at: OffsetDateTime,
    /// The user.
    pub user_id: UserId,
}

impl Ord for LikerKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.liked_at.cmp(&self.liked_at).then_with(|| self.user_id.cmp(&other.user_id))
    }
}

impl PartialOrd for LikerKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Clone)]
struct Shard<K> {
    /// Last key popped.
    frontier: Option<K>,
    /// Fetched and not popped, in order.
    fetched: VecDeque<K>,
    /// Nothing stands behind what was fetched.
    ended: bool,
}

impl<K> Shard<K> {
    /// Its first candidate is not known although there may be one.
    fn starved(&self) -> bool {
        self.fetched.is_empty() && !self.ended
    }
}

/// A merge in progress. `K` is a place in the list; the smaller comes first.
#[derive(Debug, Clone)]
pub struct Merge<K> {
    shards: Vec<Shard<K>>,
}

impl<K: Ord + Clone> Merge<K> {
    /// Starts behind `frontiers`, one per shard; `None` starts that shard at its beginning.
    #[must_use]
    pub fn new(frontiers: impl IntoIterator<Item = Option<K>>) -> Self {
        let shard = |frontier| Shard { frontier, fetched: VecDeque::new(), ended: false };
        Self { shards: frontiers.into_iter().map(shard).collect() }
    }

    /// Shards without a known first candidate, each with the key behind which to fetch. While there are any, nothing can
    /// be popped.
    pub fn starved(&self) -> impl Iterator<Item = (usize, Option<&K>)> {
        let starved = |(index, shard): (usize, _)| Shard::starved(shard).then_some((index, shard.frontier.as_ref()));
        self.shards.iter().enumerate().filter_map(starved)
    }

    /// Takes what was fetched of a shard that was [`starved`](Self::starved): candidates behind its frontier, in order.
    /// `ended` says that nothing stands behind them; so does bringing nothing new. Candidates at or before the frontier
    /// are dropped: a store that answers the same key twice does not make the list repeat it.
    pub fn feed(&mut self, shard: usize, candidates: impl IntoIterator<Item = K>, ended: bool) {
        let Some(shard) = self.shards.get_mut(shard) else { return };
        for candidate in candidates {
            let last = shard.fetched.back().or(shard.frontier.as_ref());
            if last.is_none_or(|last| *last < candidate) {
                shard.fetched.push_back(candidate);
            }
        }
        shard.ended = ended || shard.fetched.is_empty();
    }

    /// The next candidates, in order, at most `limit`: as many as are certain without fetching more. Nothing is popped.
    #[must_use]
    pub fn heads(&self, limit: usize) -> Vec<&K> {
        let mut taken = vec![0; self.shards.len()];
        let mut heads = Vec::new();
        while heads.len() < limit {
            let mut first: Option<(&K, usize)> = None;
            for (index, shard) in self.shards.iter().enumerate() {
                match shard.fetched.get(taken[index]) {
                    Some(candidate) if first.is_none_or(|(key, _)| candidate < key) => first = Some((candidate, index)),
                    None if !shard.ended => return heads,
                    _ => {}
                }
            }
            let Some((candidate, index)) = first else { break };
            heads.push(candidate);
            taken[index] += 1;
        }
        heads
    }

    /// Pops the next candidate and moves its shard's frontier onto it. `None` at the end, or while a shard is
    /// [`starved`](Self::starved).
    pub fn pop(&mut self) -> Option<K> {
        if self.shards.iter().any(Shard::starved) {
            return None;
        }
        let heads = self.shards.iter_mut().filter(|shard| !shard.fetched.is_empty());
        let shard = heads.min_by(|one, other| one.fetched.front().cmp(&other.fetched.front()))?;
        let popped = shard.fetched.pop_front()?;
        shard.frontier = Some(popped.clone());
        Some(popped)
    }

    /// Whether everything was popped.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.shards.iter().all(|shard| shard.ended && shard.fetched.is_empty())
    }

    /// Last popped key of every shard; `None` where nothing ever was popped.
    pub fn frontiers(&self) -> impl Iterator<Item = Option<&K>> {
        self.shards.iter().map(|shard| shard.frontier.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Shards as a store keeps them: each a sorted set.
    type Store = Vec<BTreeSet<(u8, u8)>>;
    type Frontiers = Vec<Option<(u8, u8)>>;
    /// Shown, hidden, and where to go on.
    type Page = (Vec<(u8, u8)>, Vec<(u8, u8)>, Option<Frontiers>);

    /// Reads one page as the service does: fetch what is starved, look at some heads, pop one by one.
    fn page(
        store: &Store,
        after: Frontiers,
        [prefetch, page_size, scan_max]: [usize; 3],
        visible: impl Fn((u8, u8)) -> bool,
    ) -> Page {
        let mut merge = Merge::new(after);
        let (mut shown, mut hidden) = (Vec::new(), Vec::new());
        while !merge.ended() && shown.len() < page_size && shown.len() + hidden.len() < scan_max {
            let starved: Vec<_> = merge.starved().map(|(shard, after)| (shard, after.copied())).collect();
            for (shard, after) in starved {
                let behind = |key: &&(u8, u8)| after.is_none_or(|after| **key > after);
                let rows: Vec<_> = store[shard].iter().filter(behind).take(prefetch).copied().collect();
                let ended = rows.len() < prefetch;
                merge.feed(shard, rows, ended);
            }
            let heads: Vec<_> = merge.heads(scan_max - shown.len() - hidden.len()).into_iter().copied().collect();
            for head in heads {
                if shown.len() == page_size {
                    break;
                }
                assert_eq!(merge.pop(), Some(head), "heads are what is popped next");
                if visible(head) { &mut shown } else { &mut hidden }.push(head);
            }
        }
        let next = (!merge.ended()).then(|| merge.frontiers().map(Option::<&_>::copied).collect());
        (shown, hidden, next)
    }

    fn store() -> impl Strategy<Value = Store> {
        // Few different first parts: equal times are the rule, not the exception. The second part names the shard too, as
        // a user lives in one shard.
        let shards = prop::collection::vec(prop::collection::btree_set((0u8..4, 0u8..60), 0..25), 1..6);
        shards.prop_map(|shards| {
            let count = shards.len();
            let in_shard = |index: usize| {
                move |(time, user): (u8, u8)| (usize::from(user) % count == index).then_some((time, user))
            };
            shards
                .into_iter()
                .enumerate()
                .map(|(index, keys)| keys.into_iter().filter_map(in_shard(index)).collect())
                .collect()
        })
    }

    proptest! {
            #[test]
            fn case_31_case_32_scn_f05_pages_are_the_list_without_skip_or_repeat(
                store in store(), prefetch in 1usize..9, page_size in 1usize..9, scan_max in 1usize..20, hide in 1u8..8,
            ) {
                let visible = |(time, user): (u8, u8)| hide == 1 || (time ^ user) % hide == 0;
                let whole: Vec<_> = store.iter().flatten().copied().collect::<BTreeSet<_>>().into_iter().collect();
                let (mut seen, mut scanned) = (Vec::new(), Vec::new());
                let mut after: Frontiers = vec![None; store.len()];
                for calls in 0.. {
                    prop_assert!(calls <= whole.len() + 1, "paging ends");
                    let (shown, hidden, next) = page(&store, after, [prefetch, page_size, scan_max], visible);
                    prop_assert!(shown.len() <= page_size && shown.len() + hidden.len() <= scan_max);
                    prop_assert!(next.is_none() || shown.len() + hidden.len() > 0, "a page with a next one has moved");
                    scanned.extend(shown.iter().chain(&hidden).copied());
                    seen.extend(shown);
                    let Some(next) = next else { break };
                    // Only what was popped moved a frontier: each is the greatest key scanned of its shard.
                    for (shard, frontier) in next.iter().enumerate() {
                        let last = scanned.iter().filter(|key| store[shard].contains(key)).max().copied();
                        prop_assert_eq!(*frontier, last);
                    }
                    after = next;
                }
                let expected: Vec<_> = whole.iter().copied().filter(|key| visible(*key)).collect();
                prop_assert_eq!(seen, expected);
                scanned.sort_unstable();
                prop_assert_eq!(scanned, whole);
            }

            #[test]
            fn case_30_what_stays_is_listed_once_while_others_come_and_go(
                store in store(), changes in prop::collection::vec((0usize..6, 0u8..60, any::<bool>()), 0..20), page_size in 1usize..6,
            ) {
                let mut live = store.clone();
                let mut stayed: BTreeSet<_> = store.iter().flatten().copied().collect();
                let mut changes = changes.into_iter();
                let mut seen = Vec::new();
                let mut after: Frontiers = vec![None; store.len()];
                loop {
                    let (shown, _, next) = page(&live, after, [3, page_size, 50], |_| true);
                    seen.extend(shown);
                    let Some(next) = next else { break };
                    after = next;
                    if let Some((shard, user, leave)) = changes.next() {
                        let shard = shard % live.len();
                        if leave {
                            if let Some(gone) = live[shard].iter().find(|key| key.1 >= user).copied() {
                                live[shard].remove(&gone);
                                stayed.remove(&gone);
                            }
                        } else {
                            // Somebody likes now, in front of everything: met only in a shard not yet begun.
                            let newcomer = u8::try_from(200 + shard).expect("few shards") + user % 10 * 5;
                        live[shard].insert((0, newcomer));
                        }
                    }
                }
                for key in &stayed {
                    prop_assert_eq!(seen.iter().filter(|seen| *seen == key).count(), 1, "{:?}", key);
                }
    let once: BTreeSet<_> = seen.iter().collect();
                prop_assert_eq!(once.len(), seen.len(), "nobody twice");
            }
        }

    #[test]
    fn case_32_prefetched_candidates_move_no_frontier() {
        let mut merge: Merge<u32> = Merge::new([None, Some(3), None]);
        assert_eq!(merge.starved().collect::<Vec<_>>(), [(0, None), (1, Some(&3)), (2, None)]);
        merge.feed(0, [1, 5, 9], false);
        assert_eq!(merge.pop(), None, "a starved shard may hold a smaller one");
        assert!(merge.heads(5).is_empty());
        merge.feed(1, [3, 4], true);
        merge.feed(2, [], true);
        assert_eq!(merge.heads(9), [&1, &4, &5, &9], "key 3 stood at the frontier already");
        assert_eq!((merge.pop(), merge.pop()), (Some(1), Some(4)));
        assert_eq!(merge.frontiers().collect::<Vec<_>>(), [Some(&1), Some(&4), None]);
        assert!(!merge.ended());
    }

    #[test]
    fn scn_f05_equal_times_are_told_apart_by_user() {
        let key = |second: i64, user: &str| LikerKey {
            liked_at: OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(second),
            user_id: UserId::parse(user).expect("an id"),
        };
        let mut keys = [key(1, "b"), key(2, "c"), key(2, "a"), key(1, "a")];
        keys.sort();
        assert_eq!(keys, [key(2, "a"), key(2, "c"), key(1, "a"), key(1, "b")]);
    }
}
