package journal

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fsName is the name of the file system that holds path, or its magic number
// (statfs(2)).
func fsName(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "unknown file system"
	}
	names := map[uint32]string{
		unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse", unix.V9FS_MAGIC: "9p", unix.SMB_SUPER_MAGIC: "smb",
		unix.SMB2_SUPER_MAGIC: "smb2", unix.CIFS_SUPER_MAGIC: "cifs", unix.CEPH_SUPER_MAGIC: "ceph", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs",
		unix.AFS_SUPER_MAGIC: "afs", unix.MSDOS_SUPER_MAGIC: "vfat", unix.EXFAT_SUPER_MAGIC: "exfat",
	}
	if name := names[uint32(st.Type)]; name != "" {
		return name
	}
	return fmt.Sprintf("file system %#x", uint32(st.Type))
}
