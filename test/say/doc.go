// Package say lets a test binary be a command that notifies by sd_notify(3).
package say
