//! The default entry of a `grub.cfg`, as far as it can be told without being GRUB: entries that are written out, and a default that is a
//! number. What depends on variables or conditions is refused by name, for a guess would start another system than the one that was meant.

/// What starts a system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub title: String,
    /// From the file system's root.
    pub kernel: String,
    pub initramfs: Vec<String>,
    /// Or why they cannot be told.
    pub arguments: Result<String, String>,
}

/// Of the menu, in its order: these are what a default counts.
enum Item {
    Entry(Lines),
    Submenu,
}

#[derive(Default)]
struct Lines {
    title: String,
    linux: Option<Vec<Word>>,
    initramfs: Vec<Word>,
}

enum Block {
    /// One of the menu itself.
    Entry,
    Other,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Word {
    text: String,
    has_variable: bool,
}

/// Only while Ubuntu's picture is on the console: empty for every other start.
const OF_THE_CONSOLE: &str = "$vt_handoff";
/// For one start; of an image that was just written there is none.
const NEXT_ENTRY: &str = "${next_entry}";

/// The error is a cause without the file's name.
pub fn default_entry(text: &str) -> Result<Entry, String> {
    let (items, number) = read(text)?;
    let count = items.len();
    match items.into_iter().nth(number) {
        None if count == 0 => Err("it has no menu entry (those of /boot/loader/entries are not read)".to_owned()),
        None => Err(format!("its default is entry {number}, and it has {count}")),
        Some(Item::Submenu) => Err(format!("its default, entry {number}, is a menu")),
        Some(Item::Entry(lines)) => entry(lines),
    }
}

fn entry(lines: Lines) -> Result<Entry, String> {
    let Lines { title, linux, initramfs } = lines;
    let mut words = linux.unwrap_or_default().into_iter();
    let kernel = words.next().ok_or_else(|| format!("its default entry {title:?} starts no Linux kernel"))?;
    let path = |word: Word| match word.has_variable || word.text.starts_with('(') {
        true => Err(format!("its default entry {title:?} names {}, which GRUB alone finds", word.text)),
        false => Ok(word.text),
    };
    let kernel = path(kernel)?;
    let initramfs = initramfs.into_iter().map(path).collect::<Result<_, _>>()?;
    let words = words.filter(|word| word.text != OF_THE_CONSOLE).map(|word| match word.has_variable {
        true => Err(format!("its default entry {title:?} has the argument {}, which GRUB alone knows", word.text)),
        // As GRUB hands it on.
        false if word.text.contains(' ') => Ok(format!("\"{}\"", word.text)),
        false => Ok(word.text),
    });
    let arguments = words.collect::<Result<Vec<_>, _>>().map(|words| words.join(" "));
    Ok(Entry { title, kernel, initramfs, arguments })
}

/// The menu, and which of it is the default.
fn read(text: &str) -> Result<(Vec<Item>, usize), String> {
    let (mut items, mut open, mut default) = (Vec::new(), Vec::new(), None);
    for line in text.replace("\\\n", "").lines() {
        let words = words(line);
        let Some((first, rest)) = words.split_first() else { continue };
        let opens = words.last().is_some_and(|word| word.text == "{");
        match first.text.as_str() {
            "set" => {
                let value = rest.first().and_then(|word| word.text.strip_prefix("default="));
                default = value.filter(|value| *value != NEXT_ENTRY).map(str::to_owned).or(default);
            }
            "menuentry" if opens && open.is_empty() => {
                let title = rest.first().map(|word| word.text.clone()).unwrap_or_default();
                items.push(Item::Entry(Lines { title, ..Lines::default() }));
                open.push(Block::Entry);
                continue;
            }
            "submenu" if opens && open.is_empty() => items.push(Item::Submenu),
            "}" => drop(open.pop()),
            command => {
                if let (Some(Block::Entry), Some(Item::Entry(lines))) = (open.last(), items.last_mut()) {
                    match command {
                        "linux" | "linux16" | "linuxefi" => lines.linux = Some(rest.to_vec()),
                        "initrd" | "initrd16" | "initrdefi" => lines.initramfs = rest.to_vec(),
                        _ => {}
                    }
                }
            }
        }
        if opens {
            open.push(Block::Other);
        }
    }
    let default = default.unwrap_or_else(|| "0".to_owned());
    let number = default.parse().map_err(|_| format!("its default is {default:?}, which is no number"))?;
    Ok((items, number))
}

/// As a shell splits a line, without what follows a `#`.
fn words(line: &str) -> Vec<Word> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Word>, None);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(end)) if c == end => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\\', None | Some('"')) => word.get_or_insert_default().text.extend(chars.next()),
            ('#', None) if word.is_none() => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, quote) => {
                let word = word.get_or_insert_default();
                word.has_variable |= c == '$' && quote != Some('\'');
                word.text.push(c);
            }
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As grub-mkconfig writes it.
    const UBUNTU: &str = r#"
if [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   save_env next_entry
else
   set default="0"
fi
function gfxmode {
	set gfxpayload="${1}"
}
# set default="7"
menuentry 'Ubuntu \o/ 24.04' --class ubuntu $menuentry_id_option 'gnulinux-simple-1' {
	load_video
	search --no-floppy --fs-uuid --set=root 1
	linux	/boot/vmlinuz-6.8 root=UUID=1 ro "dyndbg=file a +p" quiet $vt_handoff
	initrd	/boot/microcode.cpio /boot/initrd.img-6.8
}
submenu 'Advanced options' $menuentry_id_option 'advanced' {
	menuentry 'recovery' {
		linux /boot/vmlinuz-6.7 single
		initrd /boot/initrd.img-6.7
	}
}
menuentry 'UEFI Firmware Settings' {
	fwsetup
}
menuentry "Other" {
	linux ($root)/vmlinuz ${extra}
}
menuentry 'Arguments' {
	linuxefi /vmlinuz \$literal '$too' $root_arguments
}
"#;

    #[test]
    fn the_default_entry_of_a_menu() {
        let found = default_entry(UBUNTU).expect("understood");
        let expected = Entry {
            title: r"Ubuntu \o/ 24.04".to_owned(),
            kernel: "/boot/vmlinuz-6.8".to_owned(),
            initramfs: vec!["/boot/microcode.cpio".to_owned(), "/boot/initrd.img-6.8".to_owned()],
            arguments: Ok("root=UUID=1 ro \"dyndbg=file a +p\" quiet".to_owned()),
        };
        assert_eq!(found, expected);
        let fourth = default_entry(&UBUNTU.replace("default=\"0\"", "default=4")).expect("its kernel can be told");
        assert_eq!((fourth.kernel.as_str(), fourth.initramfs.len()), ("/vmlinuz", 0));
        assert!(fourth.arguments.is_err_and(|why| why.contains("$root_arguments")));
    }

    #[test]
    fn what_grub_alone_knows_is_refused() {
        for (default, said) in [
            ("1", "entry 1, is a menu"),
            ("2", "\"UEFI Firmware Settings\" starts no Linux kernel"),
            ("3", "\"Other\" names ($root)/vmlinuz"),
            ("5", "entry 5, and it has 5"),
            ("\"${saved_entry}\"", "\"${saved_entry}\", which is no number"),
            ("\"1>0\"", "which is no number"),
        ] {
            let error = default_entry(&UBUNTU.replace("default=\"0\"", &format!("default={default}")));
            let error = error.expect_err("refused");
            assert!(error.contains(said), "{default}: {error}");
        }
        let error = default_entry("set default=0\nblscfg\n").expect_err("refused");
        assert!(error.contains("no menu entry"), "{error}");
    }
}
