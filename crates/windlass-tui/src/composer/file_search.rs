//! Ranks the files of the index for a query. A longer query looks only at the results of the shorter one.

use std::cmp::Reverse;

use nucleo_matcher::{Config, Matcher, Utf32Str};

use super::file_index::{FileIndex, IndexedPath, needed_letters};

/// Characters of a query that are used.
const MAX_QUERY: usize = 256;
/// Files whose best match is computed.
const MAX_RESCORED: usize = 1_000;

/// A file that fits a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundFile {
    pub(super) path: String,
    /// The characters of the path that the query matched, by their number.
    pub(super) matched: Vec<u32>,
}

/// A file with its score. Files that come first are less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedFile {
    score: Reverse<u16>,
    distance: u32,
    position: u32,
}

/// The results of the last query.
#[derive(Debug)]
pub(super) struct FileSearch {
    matcher: Matcher,
    query: String,
    epoch: u64,
    /// Entries of the index that were looked at.
    seen: usize,
    /// All entries that fit, by their position in the index.
    fitting: Vec<u32>,
    /// Characters of paths that are not ASCII.
    buffer: Vec<char>,
}

impl Default for FileSearch {
    fn default() -> Self {
        Self {
            matcher: Matcher::new(Config::DEFAULT.match_paths()),
            query: String::new(),
            epoch: 0,
            seen: 0,
            fitting: Vec::new(),
            buffer: Vec::new(),
        }
    }
}

impl FileSearch {
    /// The best `limit` files, best first. A directory with a slash at the beginning of the query, such as `src/`,
    /// restricts the files to that directory.
    pub(super) fn find(&mut self, index: &FileIndex, query: &str, limit: usize) -> Vec<FoundFile> {
        let query: String = query
            .strip_prefix("./")
            .unwrap_or(query)
            .chars()
            .take(MAX_QUERY)
            .collect();
        let directory = directory_of(index, &query);
        self.prepare(index, &query, directory);
        let needle = FileNeedle::new(&query[directory.len()..]);
        self.matcher.config.ignore_case = needle.ignores_case;
        // A typed accent is meant; a plain letter also finds accents.
        self.matcher.config.normalize = query.is_ascii();
        let entries = index.entries();
        let earlier = std::mem::take(&mut self.fitting);
        let seen = u32::try_from(self.seen).unwrap_or(u32::MAX);
        let all = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let mut ranked: Vec<RankedFile> = Vec::new();
        for position in earlier.into_iter().chain(seen..all) {
            let Some(entry) = entries.get(position as usize) else {
                continue;
            };
            let Some(rest) = entry.path.strip_prefix(directory) else {
                continue;
            };
            if rest.is_empty() || entry.letters & needle.letters != needle.letters {
                continue;
            }
            if let Some(score) = self.quick_score(entry, rest, &needle) {
                self.fitting.push(position);
                ranked.push(RankedFile {
                    score: Reverse(score),
                    distance: entry.distance,
                    position,
                });
            }
        }
        self.seen = entries.len();
        if !needle.text.is_empty() {
            keep_best(&mut ranked, MAX_RESCORED);
            for file in &mut ranked {
                if let Some(entry) = entries.get(file.position as usize) {
                    file.score = Reverse(self.score(&entry.path[directory.len()..], &needle));
                }
            }
        }
        keep_best(&mut ranked, limit);
        ranked.sort_unstable_by_key(|file| {
            let path = entries
                .get(file.position as usize)
                .map(|entry| &*entry.path);
            (file.score, file.distance, path)
        });
        ranked
            .into_iter()
            .filter_map(|file| entries.get(file.position as usize))
            .map(|entry| self.found(entry, directory, &needle))
            .collect()
    }

    /// A score from the first match in the path and in the name of the file, or nothing if the path does not fit. The
    /// best match takes several times as long, so only the files with the best quick scores get it.
    fn quick_score(&mut self, entry: &IndexedPath, path: &str, needle: &FileNeedle) -> Option<u16> {
        if needle.text.is_empty() {
            return Some(0);
        }
        let text = Utf32Str::new(path, &mut self.buffer);
        let score = self.matcher.fuzzy_match_greedy(text, needle.utf32())?;
        if entry.name_letters & needle.letters != needle.letters {
            return Some(score);
        }
        let name = &entry.path[usize::from(entry.name_start)..];
        let text = Utf32Str::new(name, &mut self.buffer);
        let in_name = self.matcher.fuzzy_match_greedy(text, needle.utf32());
        Some(score.max(in_name.unwrap_or(0)))
    }

    fn score(&mut self, path: &str, needle: &FileNeedle) -> u16 {
        let text = Utf32Str::new(path, &mut self.buffer);
        self.matcher
            .fuzzy_match(text, needle.utf32())
            .unwrap_or_default()
    }

    /// Keeps the earlier results if every result of `query` is among them.
    fn prepare(&mut self, index: &FileIndex, query: &str, directory: &str) {
        let narrows = self.epoch == index.epoch()
            && query.starts_with(&self.query)
            && directory_of(index, &self.query) == directory
            && self.seen <= index.entries().len();
        if !narrows {
            self.fitting.clear();
            self.seen = 0;
        }
        self.epoch = index.epoch();
        query.clone_into(&mut self.query);
    }

    fn found(&mut self, entry: &IndexedPath, directory: &str, needle: &FileNeedle) -> FoundFile {
        let mut matched = Vec::new();
        let rest = entry.path.strip_prefix(directory).unwrap_or(&entry.path);
        if !needle.text.is_empty() {
            let mut buffer = Vec::new();
            let text = Utf32Str::new(rest, &mut buffer);
            self.matcher
                .fuzzy_indices(text, needle.utf32(), &mut matched);
        }
        let offset = u32::try_from(directory.chars().count()).unwrap_or(0);
        for position in &mut matched {
            *position += offset;
        }
        FoundFile {
            path: entry.path.to_string(),
            matched,
        }
    }
}

/// A query as the matcher needs it: lower case unless it has upper-case letters.
struct FileNeedle {
    text: String,
    chars: Vec<char>,
    letters: u64,
    ignores_case: bool,
}

impl FileNeedle {
    fn new(query: &str) -> Self {
        let ignores_case = !query.chars().any(char::is_uppercase);
        let chars = if query.is_ascii() {
            Vec::new()
        } else {
            query.chars().collect()
        };
        Self {
            text: query.to_owned(),
            chars,
            letters: needed_letters(query),
            ignores_case,
        }
    }

    fn utf32(&self) -> Utf32Str<'_> {
        if self.chars.is_empty() {
            Utf32Str::Ascii(self.text.as_bytes())
        } else {
            Utf32Str::Unicode(&self.chars)
        }
    }
}

/// The longest beginning of the query that is a directory of the index, with its slash.
fn directory_of<'a>(index: &FileIndex, query: &'a str) -> &'a str {
    let Some(slash) = query.rfind('/') else {
        return "";
    };
    let directory = &query[..=slash];
    let is_known = index
        .entries()
        .iter()
        .any(|entry| entry.path.starts_with(directory));
    if is_known { directory } else { "" }
}

/// Leaves the best `limit` files in any order.
fn keep_best(ranked: &mut Vec<RankedFile>, limit: usize) {
    if ranked.len() > limit && limit > 0 {
        ranked.select_nth_unstable(limit - 1);
    }
    ranked.truncate(limit);
}

#[cfg(test)]
#[path = "file_search_tests.rs"]
mod tests;
