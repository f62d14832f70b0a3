"""What each key of git's configuration can do to the person who runs git: a table, and one look-up.

Git has no list of dangerous keys. So this module classifies each key of ``git help --config``, and keys that
git does not list there. Variables stand after their section. ``*`` stands for any subsection, or for any
variable. Later versions of git have keys that an older git ignores; they are here as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum


class Effect(Enum):
    """What a key of the configuration does."""

    RUNS = "runs a program"
    REDIRECTS = "leads git to other files, addresses or repositories"
    HARMLESS = "harmless"
    UNKNOWN = "unknown"


# Each row is a section and its variables. "section.*" is a section with a subsection.
_RUNS = """
alias *
alias.* *
browser.* cmd path
core alternaterefscommand askpass editor fsmonitor gitproxy hookspath pager sshcommand
credential helper
diff external
diff.* command textconv
difftool.* cmd path
filter.* clean process smudge
gc recentobjectshook
gpg program
gpg.* program defaultkeycommand
guitool.* cmd
help browser
hook.* command
imap tunnel
instaweb browser httpd modulepath
interactive difffilter
lfs standalonetransferagent
lfs.* args clean path smudge standalonetransferagent
man viewer
man.* cmd path
merge default
merge.* driver
mergetool.* cmd path
pager *
protocol allow
protocol.* allow
remote.* receivepack uploadpack vcs
sendemail cccmd headercmd sendmailcmd smtpserver tocmd
sequence editor
submodule.* update
tar.* command
trailer.* cmd command
uploadpack packobjectshook
web browser
"""

_REDIRECTS = """
bundle.* uri
core attributesfile excludesfile worktree
extensions partialclone
fetch bundleuri
format outputdirectory signaturefile
fsmonitor socketdir
gitcvs dbdriver dbname logfile
gpg.* allowedsignersfile revocationfile
http cookiefile curloptresolve proxy proxysslcainfo proxysslcert proxysslkey sslcainfo sslcapath sslcert
http sslkey sslverify
imap host sslverify
include path
includeif.* path
init templatedir
lfs pushurl storage url
lfs.* lfspushurl lfsurl
mailmap file
promisor acceptfromserver
remote.* lfspushurl lfsurl partialclonefilter promisor proxy pushurl
scalar.* *
sendemail aliasesfile file smtpsslcertpath
sideband allowcontrolcharacters
sideband.* allowcontrolcharacters
trace2 eventtarget normaltarget perftarget
url.* insteadof pushinsteadof
"""

_HARMLESS = """
add ignoreerrors
add.* usebuiltin
advice *
am keepcr messageid threeway
apply ignorewhitespace whitespace
attr tree
author email name
bitmappseudomerge.* *
blame blankboundary coloring date ignorerevsfile markignoredlines markunblamablelines
blame markunblamables showemail showroot
branch autosetupmerge autosetuprebase sort
branch.* description merge mergeoptions pushremote rebase remote vscode-merge-base
bundle heuristic mode version
bundle.* creationtoken
checkout defaultremote guess thresholdforparallelism workers
clean requireforce
clone defaultremotename filtersubmodules rejectshallow
color *
color.* *
column *
commit cleanup gpgsign status template verbose
commitgraph changedpaths changedpathsversion generationversion maxnewfilters readchangedpaths
committer email name
completion commands
core abbrev alternaterefsprefixes autocrlf bare bigfilethreshold checkroundtripencoding checkstat
core commentchar commentstring commitgraph compression createobject deltabasecachelimit eol filemode
core filesreflocktimeout fsmonitorhookversion fsync fsyncmethod fsyncobjectfiles hidedotfiles ignorecase
core ignorestat logallrefupdates loosecompression maxtreedepth multipackindex notesref packedgitlimit
core packedgitwindowsize packedrefstimeout precomposeunicode prefersymlinkrefs preloadindex protecthfs
core protectntfs quotepath repositoryformatversion restrictinheritedhandles safecrlf sharedrepository
core sparsecheckout sparsecheckoutcone splitindex symlinks trustctime unsetenvvars untrackedcache
core usereplacerefs warnambiguousrefs whitespace lockfilepid
credential authtype interactive protectprotocol provider sanitizeprompt usehttppath username
credentialcache ignoresighup
credentialstore locktimeoutms
diff algorithm autorefreshindex colormoved colormovedws context dirstat dstprefix guitool
diff ignoresubmodules indentheuristic interhunkcontext mnemonicprefix noindex noprefix orderfile relative
diff renamelimit renames srcprefix statgraphwidth statnamewidth submodule suppressblankempty tool
diff trustexitcode wordregex wserrorhighlight
diff.* algorithm binary cachetextconv funcname trustexitcode wordregex xfuncname
difftool guidefault prompt trustexitcode
extensions compatobjectformat noop noop-v1 objectformat preciousobjects refstorage relativeworktrees
extensions submodulepathconfig worktreeconfig
fastimport unpacklimit
feature experimental manyfiles
fetch all bundlecreationtoken fsckobjects negotiationalgorithm output parallel prune prunetags
fetch recursesubmodules showforcedupdates unpacklimit writecommitgraph
fetch.* *
filter.* required
format attach cc commitlistformat coverfromdescription coverletter encodeemailheaders filenamemaxlength
format forceinbodyfrom from headers mboxrd notes noprefix numbered pretty signature signoff
format subjectprefix suffix thread to useautobase
fsck *
fsmonitor allowremote
gc aggressivedepth aggressivewindow auto autodetach autopacklimit bigpackthreshold cruftpacks logexpiry
gc maxcruftsize packrefs prunedexpire pruneexpire reflogexpire reflogexpireunreachable repackfilter
gc repackfilterto rerereresolved rerereunresolved worktreepruneexpire writecommitgraph
gc.* reflogexpire reflogexpireunreachable
gitcvs allbinary commitmsgannotation dbpass dbtablenameprefix dbuser enabled usecrlfattr
gitweb *
gpg format mintrustlevel
grep column extendedregexp fallbacktonoindex fullname linenumber patterntype threads
gui *
guitool.* argprompt confirm needsfile noconsole norescan prompt revprompt revunmerged title
help autocorrect format htmlpath
hook jobs
hook.* enabled event jobs parallel
http delegation emptyauth extraheader followredirects keepalivecount keepaliveidle keepaliveinterval
http lowspeedlimit lowspeedtime maxrequests maxretries maxretrytime minsessions noepsv pinnedpubkey postbuffer
http proactiveauth proxyauthmethod proxysslcertpasswordprotected retryafter savecookies schannelcheckrevoke
http schannelusesslcainfo sslbackend sslcertpasswordprotected sslcerttype sslcipherlist sslkeytype ssltry
http sslversion useragent version
i18n commitencoding logoutputencoding
imap authmethod folder pass port preformattedhtml user
index recordendofindexentries recordoffsettable skiphash sparse threads version
init defaultbranch defaultobjectformat defaultrefformat defaultsubmodulepathconfig
instaweb local port
interactive singlekey
lfs activitytimeout allowincompletepush batch concurrenttransfers dialtimeout fetchexclude fetchinclude
lfs fetchrecentalways keepalive locksverify repositoryformatversion setlockablereadonly skipdownloaderrors
lfs tlstimeout
lfs.* access locksverify
log abbrevcommit date decorate diffmerges excludedecoration follow graphcolors initialdecorationset mailmap
log showroot showsignature
lsrefs unborn
mailinfo scissors
mailmap blob
maintenance auto autodetach strategy
maintenance.* *
merge autostash branchdesc conflictstyle defaulttoupstream directoryrenames ff guitool log renamelimit renames
merge renormalize stat suppressdest tool verbosity verifysignatures
merge.* name recursive
mergetool guidefault hideresolved keepbackup keeptemporaries prompt writetotemp
mergetool.* hasoutput hideresolved layout trustexitcode useautomerge
midx.* *
notes displayref mergestrategy rewritemode rewriteref
notes.* *
pack allowpackreuse compression deltacachelimit deltacachesize depth indexversion island islandcore
pack packsizelimit preferbitmaptips readreverseindex threads usebitmapboundarytraversal usebitmaps
pack usepathwalk usesparse window windowmemory writebitmaphashcache writebitmaplookuptable
pack writereverseindex
pretty *
promisor advertise checkfields quiet sendfields storefields
protocol version
pull autostash ff octopus rebase twohead
push autosetupremote default followtags gpgsign negotiate pushoption recursesubmodules usebitmaps
push useforceifincludes
rebase abbreviatecommands autosquash autostash backend forkpoint instructionformat maxlabellength
rebase missingcommitscheck rebasemerges reschedulefailedexec stat updaterefs usebuiltin
receive advertiseatomic advertisepushoptions autogc certnonceseed certnonceslop denycurrentbranch
receive denydeletecurrent denydeletes denynonfastforwards fsckobjects hiderefs keepalive maxinputsize
receive procreceiverefs shallowupdate unpacklimit updateserverinfo
receive.* *
reftable *
remote pushdefault
remote.* fetch followremotehead gh-resolved mirror negotiationinclude negotiationrestrict prune prunetags
remote.* proxyauthmethod push serveroption skipdefaultupdate skipfetchall tagopt url
remotes *
repack cruftdepth cruftthreads cruftwindow cruftwindowmemory midxmustcontaincruft midxnewlayerthreshold
repack midxsplitfactor packkeptobjects updateserverinfo usedeltabaseoffset usedeltaislands writebitmaps
replay refaction
rerere autoupdate enabled
reset quiet
revert reference
safe barerepository directory
sendemail aliasfiletype annotate assume8bitencoding assumeyes bcc blob cc chainreplyto confirm envelopesender
sendemail forbidsendmailvariables from identity imapsentfolder mailmap multiedit outlookidfix
sendemail signedoffbycc signedoffcc smtpauth smtpbatchsize smtpdomain smtpencryption smtppass
sendemail smtprelogindelay smtpserveroption smtpserverport smtpsslclientcert smtpsslclientkey smtpuser
sendemail suppresscc suppressfrom thread to transferencoding useimaponly validate xmailer
sendpack sideband
showbranch default
sparse expectfilesoutsideofpatterns
splitindex maxpercentchange sharedindexexpire
ssh variant
stash index showincludeuntracked showpatch showstat usebuiltin
status aheadbehind branch comparebranches displaycommentprefix relativepaths renamelimit renames short
status showstash showuntrackedfiles submodulesummary
submodule active alternateerrorstrategy alternatelocation fetchjobs propagatebranches recurse
submodule.* active branch fetchrecursesubmodules gitdir ignore url
survey *
tag forcesignannotated gpgsign sort
tar umask
tar.* remote
trace2 configparams destinationdebug envvars eventbrief eventnesting maxfiles normalbrief perfbrief
trailer ifexists ifmissing separators where
trailer.* ifexists ifmissing key where
transfer advertiseobjectinfo advertisesid bundleuri credentialsinurl fsckobjects hiderefs unpacklimit
uploadarchive allowunreachable
uploadpack advertisebundleuris allowanysha1inwant allowfilter allowreachablesha1inwant allowrefinwant
uploadpack allowtipsha1inwant blobpackfileuri hiderefs keepalive
uploadpackfilter allow
uploadpackfilter.* allow maxdepth
user email name signingkey useconfigonly
versionsort prereleasesuffix suffix
worktree guessremote userelativepaths
"""

# A subsection of these narrows a key to some addresses or identities; the key does the same without it.
_NARROWED = frozenset({"credential", "http", "sendemail"})

_HELPER_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
_WORDS_OF_BOOLEANS = frozenset({"", "true", "yes", "on", "false", "no", "off"})
_ADDRESSES = frozenset(
    {
        "branch.*.pushremote",
        "branch.*.remote",
        "remote.pushdefault",
        "remote.*.pushurl",
        "remote.*.url",
        "submodule.*.url",
    }
)
_GIT_LFS = {
    "filter.lfs.clean": {"git-lfs clean -- %f"},
    "filter.lfs.smudge": {"git-lfs smudge -- %f", "git-lfs smudge --skip -- %f"},
    "filter.lfs.process": {"git-lfs filter-process", "git-lfs filter-process --skip"},
}
PROGRAMS_OF_LFS = frozenset(_GIT_LFS)
"""The keys with which git runs git-lfs as a filter."""
_BUILT_IN_MERGE_DRIVERS = frozenset({"binary", "text", "union"})


def effect_of(key: str, value: str | None = None) -> Effect:
    """Return what a key does, with this value.

    Arguments:
        key: as git prints it: ``section.variable`` or ``section.subsection.variable``.
        value: its value; ``None`` for a key without one, which git takes for *true*.

    Returns:
        ``Effect.UNKNOWN`` for a key that git does not have. Another tool may read it.

    """
    pattern = pattern_of(key)
    section, _, variable = pattern.rpartition(".")
    effect = _listed(section, variable) or _listed(section, "*") or Effect.UNKNOWN
    return _with_value(pattern, effect, value)


def is_of_git_lfs(key: str, value: str | None) -> bool:
    """Return whether ``git lfs install --local`` writes this line; it runs the git-lfs of the user's PATH."""
    return value in _GIT_LFS.get(key, ())


def _listed(section: str, variable: str) -> Effect | None:
    rows = _ROWS.get(section, ())
    return next((effect for variables, effect in rows if variable in variables.split()), None)


def pattern_of(key: str) -> str:
    """Return the row of the table for a key: in lower case, with ``*`` for the subsection."""
    section, _, rest = key.partition(".")
    _, dot, variable = rest.rpartition(".")
    has_subsection = dot and section.lower() not in _NARROWED
    return f"{section}.*.{variable}".lower() if has_subsection else f"{section}.{variable}".lower()


def _with_value(pattern: str, effect: Effect, value: str | None) -> Effect:
    text = (value or "").strip()
    harmless_value = (
        (pattern == "core.fsmonitor" or pattern.startswith("pager.")) and _is_boolean(text)
    ) or (pattern == "merge.default" and text in _BUILT_IN_MERGE_DRIVERS)
    if harmless_value or (pattern == "submodule.*.update" and not text.startswith("!")):
        return Effect.HARMLESS
    # "ext::COMMAND" runs a command, and "NAME::ADDRESS" runs git-remote-NAME (gitremote-helpers(7)).
    if pattern in _ADDRESSES and _HELPER_ADDRESS.match(text):
        return Effect.RUNS
    return effect


def _is_boolean(text: str) -> bool:
    return text.lower() in _WORDS_OF_BOOLEANS or text.lstrip("-").isdigit()


def _rows() -> dict[str, list[tuple[str, Effect]]]:
    """Return the variables of each section, in the words of the tables: an entry for each key takes 75 kB."""
    rows: dict[str, list[tuple[str, Effect]]] = {}
    for table, effect in ((_RUNS, Effect.RUNS), (_REDIRECTS, Effect.REDIRECTS), (_HARMLESS, Effect.HARMLESS)):
        for row in table.strip().split("\n"):
            section, _, variables = row.partition(" ")
            rows.setdefault(section, []).append((variables, effect))
    return rows


_ROWS: Mapping[str, Sequence[tuple[str, Effect]]] = _rows()
