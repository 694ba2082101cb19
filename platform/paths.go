package platform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Errors of the two paths, for callers that have a remedy.
var (
	ErrNoStateDir      = errors.New("set --state, PROCSUP_STATE, XDG_STATE_HOME or HOME")
	ErrSocketTooLong   = errors.New("path too long for a unix socket; give a shorter one by --socket or PROCSUP_SOCKET")
	ErrUntrustedFolder = errors.New("folder is not private to this user")
)

// StateDir is the absolute path of the folder for journal and spools: flag
// (--state) if not "", else PROCSUP_STATE, $XDG_STATE_HOME/procsup,
// ~/.local/state/procsup. It makes nothing. ErrNoStateDir when none of them is
// set; HOME is not looked up in the password database.
func StateDir(flag string) (string, error) {
	for _, p := range []string{flag, os.Getenv("PROCSUP_STATE")} {
		if p != "" {
			return absolute("state folder", p)
		}
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // relative ones are to be ignored: XDG basedir spec
		return filepath.Join(dir, "procsup"), nil
	}
	home := homeDir()
	if home == "" {
		return "", fmt.Errorf("state folder: %w", ErrNoStateDir)
	}
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("state folder: HOME is %q, not an absolute path: %w", home, ErrNoStateDir)
	}
	return filepath.Join(home, ".local", "state", "procsup"), nil
}

// SocketPath is the absolute path of the daemon's socket: flag (--socket) if
// not "", else PROCSUP_SOCKET, $XDG_RUNTIME_DIR/procsup/sock, else
// /tmp/procsup-UID/sock. XDG_RUNTIME_DIR counts only when it is a folder of
// this user, which it is not after su. It makes nothing; a folder in /tmp that
// exists is checked (ErrUntrustedFolder), as anyone could have made it.
// ErrSocketTooLong when the kernel would not take the path.
func SocketPath(flag string) (string, error) {
	for _, p := range []string{flag, os.Getenv("PROCSUP_SOCKET")} {
		if p == "" {
			continue
		}
		path, err := absolute("socket", p)
		if err != nil {
			return "", err
		}
		return path, fits(path)
	}
	path := filepath.Join(runtimeDir(), "sock")
	if err := checkPrivate(filepath.Dir(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return path, fits(path)
}

// runtimeDir is the folder for the socket where none was asked for.
func runtimeDir() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if fi, err := os.Stat(dir); filepath.IsAbs(dir) && err == nil && fi.IsDir() && ownedByUs(fi) {
		return filepath.Join(dir, "procsup")
	}
	return sharedDir()
}

// MakeSocketDir makes the folder of a socket with mode 0700 when it is missing,
// its parents as usual. The default folder (SocketPath without flag and
// PROCSUP_SOCKET) is checked if it exists, ErrUntrustedFolder; a folder that the
// user named is the user's business.
func MakeSocketDir(socket string) error {
	dir := filepath.Dir(socket)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("socket folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("socket folder: %w", err)
	}
	if dir == runtimeDir() {
		return checkPrivate(dir)
	}
	return nil
}

// checkPrivate refuses a folder that is a symbolic link, somebody else's, or
// open to others.
func checkPrivate(dir string) error {
	fi, err := os.Lstat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("socket folder: %w", err)
	case !fi.IsDir():
		return fmt.Errorf("socket folder %s is a symbolic link or no folder: %w", dir, ErrUntrustedFolder)
	case !ownedByUs(fi):
		return fmt.Errorf("socket folder %s belongs to another user: %w", dir, ErrUntrustedFolder)
	case modesCount && fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("socket folder %s has mode %#o, not 0700: %w", dir, fi.Mode().Perm(), ErrUntrustedFolder)
	}
	return nil
}

func fits(path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("socket %s has %d bytes, %d are possible: %w", path, len(path), maxSocketPath, ErrSocketTooLong)
	}
	return nil
}

func absolute(what, path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil { // the working folder was removed
		return "", fmt.Errorf("%s %q is relative and the current folder unknown: %w", what, path, err)
	}
	return abs, nil
}
