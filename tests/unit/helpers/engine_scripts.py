"""Programs that stand for an engine."""

STOPPING = """
case $1 in
dump)
    kill -STOP $3; echo memory > $5/pages.img
    [ $7 != --action-script ] || CRTOOLS_IMAGE_DIR=$5 CRTOOLS_SCRIPT_ACTION=post-dump $8
    ;;
--version) echo 'Version: 4.1.1' ;;
esac
"""
