//! Parses redirections and here-documents: the files that they read and write, and the text of here-documents.

use windlass_core::shell::{Simple, Word, WriteTarget};

use super::{HereDocument, LineReader, MAX_HERE_DOCUMENTS, ReadResult};
use crate::wrappers;

impl LineReader<'_, '_> {
    pub(super) fn redirect(&mut self, simple: &mut Simple) -> ReadResult<()> {
        if self.take("<<<") {
            self.blanks();
            let begin = self.at;
            simple.input = Some(self.word()?);
            return if self.at > begin {
                Ok(())
            } else {
                Err("a redirection has no target")
            };
        }
        if self.take("<<") {
            let tabs = self.take("-");
            self.blanks();
            let (mark, quoted) = self.mark()?;
            self.here_documents.push(HereDocument {
                mark,
                quoted,
                tabs,
                command: usize::MAX,
            });
            return if self.here_documents.len() <= MAX_HERE_DOCUMENTS {
                Ok(())
            } else {
                Err("it contains too many here-documents")
            };
        }
        let both = self.take("<>");
        let joins = !both && (self.take("<&") || self.take(">&"));
        let reads = !both && !joins && self.take("<");
        if !both && !joins && !reads {
            let _ = self.take("&>>")
                || self.take("&>")
                || self.take(">>")
                || self.take(">|")
                || self.take(">");
        }
        self.blanks();
        let word = self.word()?;
        if word.text.is_empty() {
            return Err("a redirection has no target");
        }
        // `>&2` duplicates a file descriptor, `>&file` writes a file.
        let stream = word
            .text
            .trim_end_matches('-')
            .bytes()
            .all(|byte| byte.is_ascii_digit());
        if joins && word.known && stream {
            return Ok(());
        }
        if reads {
            simple.reads.push(word);
        } else {
            simple.writes.push(WriteTarget {
                word,
                removes: false,
                at: None,
            });
        }
        Ok(())
    }

    /// The end mark of a here-document, and whether it is quoted.
    pub(super) fn mark(&mut self) -> ReadResult<(String, bool)> {
        let begin = self.at;
        let word = self.word()?;
        let raw = &self.src[begin..self.at];
        if !word.known || raw.is_empty() || raw.contains(['$', '`', '\n']) {
            return Err("the end mark of a here-document is not a plain word");
        }
        Ok((word.text, raw.contains(['\'', '"', '\\'])))
    }

    pub(super) fn read_here_documents(&mut self) -> ReadResult<()> {
        for body in std::mem::take(&mut self.here_documents) {
            let begin = self.at;
            let end = loop {
                let line_end = self.rest().find('\n').unwrap_or(self.rest().len());
                let (start, line) = (self.at, &self.rest()[..line_end]);
                let last = self.at + line_end >= self.end;
                self.at = (self.at + line_end + 1).min(self.end);
                let line = if body.tabs {
                    line.trim_start_matches('\t')
                } else {
                    line
                };
                if line == body.mark {
                    break start;
                }
                if last {
                    self.doubt("a here-document does not end");
                    break self.end;
                }
            };
            let after = self.at;
            let text = if body.quoted {
                Word::literal(&self.src[begin..end])
            } else {
                self.at = begin;
                let odd = std::mem::take(&mut self.odd);
                let text = self.body(end)?;
                let inner = std::mem::replace(&mut self.odd, odd);
                if let Some(command) = self.found.commands.get_mut(body.command) {
                    command.odd |= inner;
                }
                text
            };
            self.at = after;
            let runs = self
                .found
                .commands
                .get_mut(body.command)
                .is_some_and(|command| {
                    command.input = Some(text.clone());
                    wrappers::reads_script(command)
                });
            if runs {
                self.text(&text.text)?;
            }
        }
        Ok(())
    }
}
