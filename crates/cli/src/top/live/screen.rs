//! The terminal, which is restored however the program ends.

use std::io::{self, Stdout, Write, stdin, stdout};
use std::mem::ManuallyDrop;
use std::sync::{Mutex, Once, PoisonError};

use ratatui::backend::TermionBackend;
use ratatui::{Frame, Terminal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Changes to the alternate screen, and hides the cursor (xterm's control sequences).
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";

/// Goes back to the usual screen, and shows the cursor.
const LEAVE: &[u8] = b"\x1b[?1049l\x1b[?25h";

/// The settings of the terminal before it was taken.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The screen of a program that has the terminal to itself. The terminal is restored when this is
/// dropped, and before a panic message is printed.
///
/// The clean-up of ratatui is skipped: it complains on standard error, and panics where that is
/// gone, too.
pub(super) struct Screen(ManuallyDrop<Terminal<TermionBackend<Stdout>>>);

/// Restores the terminal on drop.
struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal. A terminal that is gone needs nothing.
fn give_back() {
    let _ = write(LEAVE);
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

fn write(sequences: &[u8]) -> io::Result<()> {
    let mut output = stdout().lock();
    output.write_all(sequences)?;
    output.flush()
}

/// Makes the terminal pass on each key at once, without an echo.
fn make_raw() -> io::Result<()> {
    let mut settings = tcgetattr(stdin())?;
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings.clone());
    settings.make_raw();
    Ok(tcsetattr(stdin(), OptionalActions::Now, &settings)?)
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> io::Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let told = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                told(panic);
            }));
        });
        make_raw()?;
        let taken = Taken;
        write(ENTER)?;
        let terminal = Terminal::new(TermionBackend::new(stdout()))?;
        // From here on it is the screen's.
        std::mem::forget(taken);
        Ok(Screen(ManuallyDrop::new(terminal)))
    }

    /// Draws the changes, at the size that the terminal has now.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(draw).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}
