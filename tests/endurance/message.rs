//! The messages of a storm: what their handler makes of them.

use redrive::domain::id::MessageId;

/// Runs with a message's first line. Each effect is one appended line, so that none is torn or lost.
pub(crate) const HANDLER: &str = r#"read -r kind rest
case $kind in
permanent) exit 65 ;;
always) exit 75 ;;
once) (set -C && : >"once-$REDRIVE_RECORD_ID") 2>/dev/null && exit 75 ;;
slow) sleep 8 ;;
esac
echo "$REDRIVE_IDEMPOTENCY_KEY" >>effects
"#;

/// What a handler makes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is done.
    Done,
    /// It can never succeed.
    Permanent,
    /// It fails once, and is done then.
    Once,
    /// It fails each time.
    Always,
    /// It is done, but takes longer than a visibility timeout.
    Slow,
    /// It is done, and so are the others with the same body.
    Twin,
}

use Kind::{Always, Done, Once, Permanent, Slow, Twin};

/// Every twenty messages are so. Fewer than half of all attempts fail for the moment, or the breaker would
/// rightly take the handler for broken.
const MIX: [Kind; 20] = [
    Done, Permanent, Twin, Done, Once, Done, Slow, Twin, Done, Once, //
    Done, Twin, Done, Permanent, Done, Once, Always, Done, Twin, Done,
];

impl Kind {
    /// Whether the handler can do it.
    pub(crate) const fn can_succeed(self) -> bool {
        !matches!(self, Permanent | Always)
    }

    const fn verb(self) -> &'static str {
        match self {
            Done => "done",
            Permanent => "permanent",
            Once => "once",
            Always => "always",
            Slow => "slow",
            Twin => "twin",
        }
    }

    /// The error code under which it is parked, if it is parked as it should be.
    pub(crate) const fn code(self) -> Option<&'static str> {
        match self {
            Permanent => Some("EXIT_65"),
            Always => Some("EXIT_75"),
            Done | Once | Slow | Twin => None,
        }
    }
}

/// The n-th message: its kind and its body.
pub(crate) fn message(n: usize) -> (Kind, String) {
    let kind = MIX[n % MIX.len()];
    let own = if kind == Twin { n / MIX.len() } else { n };
    (kind, format!("{} {own}\n", kind.verb()))
}

/// A message as it was sent.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) id: MessageId,
    pub(crate) kind: Kind,
    pub(crate) body: String,
}
