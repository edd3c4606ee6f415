"""Programs that stand for an engine."""

OPEN_FILES = "printf '\\031CVT810V' > $5/files.img"
"""What writes an image of open files without entries, as CRIU does."""

STOPPING = """
case $1 in
dump)
    kill -STOP $3; echo memory > $5/pages.img; OPEN_FILES
    [ $7 != --action-script ] || CRTOOLS_IMAGE_DIR=$5 CRTOOLS_SCRIPT_ACTION=post-dump $8
    ;;
--version) echo 'Version: 4.1.1' ;;
esac
""".replace("OPEN_FILES", OPEN_FILES)
