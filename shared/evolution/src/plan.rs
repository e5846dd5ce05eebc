//! Decides what is left to apply.

use sha2::{Digest, Sha256};

use crate::Migration;

/// How migrations disagree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Disorder {
    /// A name is not `V`, four digits, `__`, words; or its number is not the next.
    #[error("migration {found:?} stands where V{expected:04}__name is expected")]
    Name {
        /// The number that is due.
        expected: usize,
        /// What stands there.
        found: String,
    },
    /// The text of an applied migration is not what it was.
    #[error("migration {0} was changed after it was applied; restore it and add a new one")]
    Changed(String),
    /// What was applied is not how the list begins.
    #[error("migration {applied} was applied where the list has {listed}")]
    Other {
        /// Recorded in the schema.
        applied: String,
        /// In the list.
        listed: String,
    },
}

/// SHA-256 of a migration's text, in hexadecimal.
#[must_use]
pub fn checksum(sql: &str) -> String {
    Sha256::digest(sql).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// What of `migrations` is still to be applied, given the (name, checksum) pairs recorded so far, by name. A schema that
/// is ahead of the list was migrated by a newer build; this build may run on it, since steps only add.
pub(crate) fn pending<'a>(
    migrations: &'a [Migration],
    recorded: &[(String, String)],
) -> Result<&'a [Migration], Disorder> {
    for (index, migration) in migrations.iter().enumerate() {
        let expected = index + 1;
        if number(migration.name) != Some(expected) {
            return Err(Disorder::Name { expected, found: migration.name.to_owned() });
        }
    }
    for (migration, (name, sum)) in migrations.iter().zip(recorded) {
        if migration.name != name {
            return Err(Disorder::Other { applied: name.clone(), listed: migration.name.to_owned() });
        }
        if checksum(migration.sql) != *sum {
            return Err(Disorder::Changed(name.clone()));
        }
    }
    Ok(migrations.get(recorded.len()..).unwrap_or_default())
}

fn number(name: &str) -> Option<usize> {
    let (digits, words) = name.strip_prefix('V')?.split_once("__")?;
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let well_formed = digits.len() == 4
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !words.is_empty()
        && words.bytes().all(allowed);
    well_formed.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: [Migration; 3] = [
        Migration { name: "V0001__one", sql: "select 1" },
        Migration { name: "V0002__two", sql: "select 2" },
        Migration { name: "V0003__three", sql: "select 3" },
    ];

    fn recorded(of: &[Migration]) -> Vec<(String, String)> {
        of.iter().map(|migration| (migration.name.to_owned(), checksum(migration.sql))).collect()
    }

    fn names(migrations: &[Migration], recorded: &[(String, String)]) -> Result<Vec<&'static str>, Disorder> {
        Ok(pending(migrations, recorded)?.iter().map(|migration| migration.name).collect())
    }

    #[test]
    fn what_was_not_applied_is_pending() {
        for applied in 0..=3 {
            let expected: Vec<&str> = LIST[applied..].iter().map(|migration| migration.name).collect();
            assert_eq!(names(&LIST, &recorded(&LIST[..applied])), Ok(expected));
        }
    }

    #[test]
    fn an_older_build_runs_on_a_newer_schema() {
        assert_eq!(names(&LIST[..1], &recorded(&LIST)), Ok(vec![]));
    }

    #[test]
    fn a_changed_migration_is_refused() {
        let mut applied = recorded(&LIST[..2]);
        applied[0].1 = checksum("select 0");
        assert_eq!(names(&LIST, &applied), Err(Disorder::Changed("V0001__one".to_owned())));
    }

    #[test]
    fn a_schema_with_other_migrations_is_refused() {
        let applied = [recorded(&LIST[..1]), recorded(&LIST[2..])].concat();
        let expected = Disorder::Other { applied: "V0003__three".to_owned(), listed: "V0002__two".to_owned() };
        assert_eq!(names(&LIST, &applied), Err(expected));
    }

    #[test]
    fn gaps_and_other_names_are_refused() {
        for name in ["V0002__gap", "V1__short", "0001__no_letter", "V0001_one", "V0001__", "V0001__Loud", "V000a__x"] {
            let list = [Migration { name, sql: "" }];
            assert_eq!(names(&list, &[]), Err(Disorder::Name { expected: 1, found: name.to_owned() }), "{name}");
        }
    }

    #[test]
    fn the_checksum_is_sha_256() {
        assert_eq!(checksum(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
