//! Where the source of Debian's files is that we pass on: what the GNU General Public License, version 2, wants beside them (section 3).

use crate::packages::Package;

pub const RECIPE: &str = include_str!("source_offer.rs");

/// `files`: which they are, where they are from, and where their licence stands. `source`: the source package of that version.
pub fn source_offer(files: &str, source: &Package) -> String {
    let Package { name, version } = source;
    format!(
        "{files}\n\
         \n\
         Their complete source is Debian's source package {name}, version {version}, of Debian's archive or of its snapshots:\n\
         \n\
         \u{20}   apt-get source {name}={version}\n\
         \n\
         Written offer: for at least three years from the day on which they gave you these files, the maintainers of Metalplane give anybody \
         who asks for it that complete source, in a form that machines read, on a medium that is customary for it, for no more than what \
         its copying and sending costs. Ask by an issue of the project.\n\
         \n\
         Whoever passes these files on passes on the source, or an offer of his own, or (where nothing is earned by it) this one.\n"
    )
}
