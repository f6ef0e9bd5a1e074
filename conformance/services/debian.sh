# shellcheck shell=bash disable=SC2154
# Unpacks packages of a Debian release into a folder. The machine itself stays as it is and may have another release. Sourced
# after lib.sh, never run.
#
# LARDER_DEBIAN_MIRROR     a mirror of Debian's packages; default: the one that the machine's apt uses, if it is Debian

# Packages that others depend on for their installation or for options that are off, and a third of the bytes.
unneeded='^(adduser|debconf|libllvm.*|libz3.*|.*perl.*|login.defs|netbase|openssl.*|passwd|postgresql-common.*|procps|sensible-utils|ssl-cert|ucf)$'

# Unpacks packages of a release and what they depend on into a folder, once for each list of packages. Programs of another
# release need their own C library: see `write_starters`.
unpack_of_debian() {
    local release=$1 folder=$2 mark package
    shift 2
    mark=larder-$(printf '%s\n' "$release" "$unneeded" "$@" | sha256sum | cut -c 1-12)
    (
        # Two services can share the folder.
        flock 8
        [ ! -e "$folder/$mark" ] || exit 0
        say "unpacking $1 from packages of Debian ($release) into $folder"
        umask 022
        rm -rf "$folder" "$folder.new"
        mkdir -p "$folder.new/packages"
        # Without these links, one package would create the folders that another one has as links.
        mkdir -p "$folder.new"/usr/{bin,lib,lib64,sbin}
        ln -s usr/bin usr/lib usr/lib64 usr/sbin "$folder.new"
        cd "$folder.new/packages" && download_of_debian "$release" --closure "$@" >"$folder.log" 2>&1 ||
            { tail -n 3 "$folder.log" >&2; exit 1; }
        for package in *.deb; do
            dpkg-deb --fsys-tarfile "$package" | tar -x --no-same-owner --keep-directory-symlink -C .. || exit 1
        done
        cd .. && rm -rf packages && : >"$mark" && mv "$folder.new" "$folder"
    ) 8>"$folder.lock" || die "cannot unpack $1; it needs apt-get, dpkg-deb and the package debian-archive-keyring; \
the log is $folder.log"
}

# Downloads packages of a release into the current folder, with separate package lists. With --closure, also what they depend on;
# with --missing, only what the machine lacks of that.
download_of_debian() {
    local release=$1 keys=/usr/share/keyrings/debian-archive-keyring.gpg mirror index options names
    shift
    mirror=${LARDER_DEBIAN_MIRROR:-$(mirror_of_debian)}
    [ -n "$mirror" ] || { echo "the machine is not Debian; set LARDER_DEBIAN_MIRROR to a mirror of Debian's packages"; return 1; }
    [ -e "$keys" ] || { echo "$keys is missing; install debian-archive-keyring"; return 1; }
    index=$(mktemp -d "$PWD/index.XXXXXX")
    mkdir -p "$index/lists/partial" "$index/cache/archives/partial"
    if [ "$1" = --missing ]; then cp /var/lib/dpkg/status "$index/status"; else : >"$index/status"; fi
    echo "deb [signed-by=$keys] $mirror $release main" >"$index/sources.list"
    options=(-qq -o APT::Sandbox::User=root -o "Dir::Etc::SourceList=$index/sources.list" -o Dir::Etc::SourceParts=-
        -o "Dir::State::Lists=$index/lists" -o "Dir::Cache=$index/cache" -o "Dir::State::Status=$index/status"
        -o Acquire::Retries=3 -o Acquire::Languages=none)
    apt-get "${options[@]}" update || return 1
    names=("$@")
    if [ "$1" = --closure ] || [ "$1" = --missing ]; then
        shift
        # shellcheck disable=SC2207
        names=($(apt-get "${options[@]}" --simulate --no-install-recommends install "$@" |
            sed -n 's/^Inst \([^ ]*\) .*/\1/p' | grep -vE "$unneeded"))
        [ ${#names[@]} != 0 ] || return 1
    fi
    apt-get "${options[@]}" download "${names[@]}" && rm -rf "$index"
}

# Prints the mirror from which the machine's own packages come.
mirror_of_debian() {
    # shellcheck disable=SC1091,SC2016
    (
        . /etc/os-release
        [ "$ID" = debian ] || exit 0
        apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' | sed -n "s/ $VERSION_CODENAME\$//p" | head -n 1
    )
}

# Renames each program of a folder and writes a script in its place, which runs it with the unpacked C library. The programs
# find their other files by the script's path.
write_starters() {
    local root=$1 folder=$2 program
    shift 2
    for program in "$@"; do
        [ ! -e "$root/$folder/$program.program" ] || continue
        cat >"$root/$folder/$program.new" <<STARTER || return 1
#!/bin/sh
here=\$(dirname "\$0")
libraries=\$(echo "\${here%/$folder}"/usr/lib/*-linux-gnu*)
exec "\$libraries"/ld-linux-*.so.* --library-path "\$libraries" --argv0 "\$0" "\$here/$program.program" "\$@"
STARTER
        chmod 755 "$root/$folder/$program.new" && mv "$root/$folder/$program" "$root/$folder/$program.program" &&
            mv "$root/$folder/$program.new" "$root/$folder/$program" || return 1
    done
}
