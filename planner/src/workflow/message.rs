//! The message of an action. An agent's next one takes the place of the one before, but for one thing: a disk that was told of once has to
//! be erased at release, whether or not a controller has read of it in between.

use crate::erase;
use api::tinkerbell::workflow::Action;

/// What is said of the action from now on. Of each disk that its message told of before and that is not told of now, a line stays.
pub(super) fn say(action: &mut Action, said: &str) {
    let now = erase::disks(said);
    let before = action.message.as_deref().map(erase::disks).unwrap_or_default();
    let all = erase::seen_with(&now, before);
    let kept = all[now.len()..].iter().map(erase::Disk::line);
    let lines = (!said.is_empty()).then(|| said.to_owned()).into_iter().chain(kept).collect::<Vec<_>>();
    action.message = (!lines.is_empty()).then(|| lines.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = r#"disk {"name":"sda","serial":"S1","bytes":1,"result":"Seen"}"#;
    const SECOND: &str = r#"disk {"name":"sdb","serial":"S2","bytes":1,"result":"Seen"}"#;

    fn said(before: Option<&str>, said: &str) -> Option<String> {
        let mut action = Action { message: before.map(str::to_owned), ..Action::default() };
        say(&mut action, said);
        action.message
    }

    #[test]
    fn a_disk_that_was_told_of_stays_told_of() {
        let both = format!("{FIRST}\n{SECOND}");
        assert_eq!(said(Some(&both), FIRST), Some(both.clone()));
        assert_eq!(said(Some(&format!("{both}\n10 %")), "the disk is full"), Some(format!("the disk is full\n{both}")));
        assert_eq!(said(Some(&both), ""), Some(both.clone()));
        assert_eq!(said(Some(&both), &both), Some(both));
        assert_eq!(said(Some("10 %"), "20 %").as_deref(), Some("20 %"));
        assert_eq!(said(Some("10 %"), ""), None);
    }

    /// What an earlier try erased and this one did not find is not erased by what this one says.
    #[test]
    fn an_erased_disk_that_is_not_told_of_again_was_only_seen() {
        let erased = r#"disk {"name":"sdb","serial":"S2","bytes":1,"result":"Erased","method":"Overwrite","read":"all of it is zero"}"#;
        assert_eq!(said(Some(erased), FIRST), Some(format!("{FIRST}\n{SECOND}")));
    }
}
